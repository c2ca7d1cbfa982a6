// SPDX-License-Identifier: Apache-2.0

// Command pause keeps a pod's sandbox until a signal ends it.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
}
