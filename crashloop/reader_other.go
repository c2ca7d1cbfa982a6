// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package main

import "os"

func readerGone(*os.File) <-chan struct{} { return nil }
