// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
)

// Record has a program, hack/patchset.sh, keep for its matrix whether a check has
// passed, with details where there are any. It does nothing without a program, or if the check was interrupted.
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
		return fmt.Errorf("the result of %s cannot be kept: %w", check, err)
	}
	return nil
}
