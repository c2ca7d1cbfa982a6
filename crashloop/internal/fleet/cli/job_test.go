// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"
)

// The parts that the pods of the Job print add up to the output of one run.
func TestJob(t *testing.T) {
	data, err := os.ReadFile("../../../../deploy/plan/job.yaml")
	require.NoError(t, err)
	var job batchv1.Job
	require.NoError(t, yaml.UnmarshalStrict(data, &job))
	require.NotNil(t, job.Spec.CompletionMode)
	assert.Equal(t, batchv1.IndexedCompletion, *job.Spec.CompletionMode)
	require.NotNil(t, job.Spec.Completions)
	require.Len(t, job.Spec.Template.Spec.Containers, 1)
	args := job.Spec.Template.Spec.Containers[0].Args
	require.Equal(t, []string{"plan", "fleet"}, args[:2])
	smaller := []string{"--nodes=23", "--pods=5", "--for=2h"} // The last one of a flag counts.
	var parts strings.Builder
	var whole []string
	for i := range *job.Spec.Completions {
		whole = nil
		var part []string
		for _, arg := range args[2:] {
			expanded := strings.ReplaceAll(arg, "$(JOB_COMPLETION_INDEX)", fmt.Sprint(i))
			if part = append(part, expanded); expanded == arg {
				whole = append(whole, arg)
			}
		}
		assert.Less(t, len(whole), len(part), "no argument has the index")
		parts.WriteString(simulated(t, append(part, smaller...)...))
	}
	merged, _, err := execute(NewMerge(), parts.String(), "-")
	require.NoError(t, err)
	assert.Equal(t, simulated(t, append(whole, smaller...)...), merged)
}
