// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
)

// Record runs a program, that of hack/pages, which stores for its matrix whether a check
// passed, with details. It does nothing without a program, or if the check was
// interrupted.
func Record(ctx context.Context, program, check string, passed bool, details string) error {
	if program == "" || ctx.Err() != nil {
		return nil
	}
	args := []string{"record", check}
	if details != "" {
		args = append(args, details)
	}
	if !passed {
		args = append(args, "--failed")
	}
	if _, err := Output(ctx, program, args...); err != nil {
		return fmt.Errorf("storing the result of %s: %w", check, err)
	}
	return nil
}
