// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package printer

// HandleSuspend does nothing: this system has no Ctrl-Z.
func (p *Printer) HandleSuspend() (end func()) { return func() {} }
