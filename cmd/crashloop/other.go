// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package main

// lock does nothing: no runtime is tried on such systems.
func lock(string) (unlock func(), err error) { return func() {}, nil }

// stayBelow does nothing: there is no Ctrl-Z.
func (p *printer) stayBelow() (end func()) { return func() {} }
