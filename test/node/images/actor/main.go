// SPDX-License-Identifier: Apache-2.0

// Command actor is the program in the containers of pods that tests restart. It
// follows its arguments, and writes each event to the pod's journal, so that a test
// outside of the pod can check what ran in which order.
//
//	actor LIFE...        the first start follows the first LIFE, and so on; later
//	                     starts follow the last one
//	actor note EVENT DURATION
//	                     for hooks: writes EVENT once the container's start is in
//	                     the journal, waits, writes EVENT-end
//	actor fail EVENT DURATION
//	                     for hooks: the same, and fails
//	actor exists NAME    for probes: fails unless the file NAME is in /pod
//	actor grow           for the step eat: takes memory until it is killed
//
// A LIFE is a list of steps, separated by spaces. After the last step the actor
// waits for SIGTERM:
//
//	sleep=DURATION  waits
//	wait=NAME       waits until the file NAME is in /pod, and removes it
//	after=NAME      waits until the container NAME has started as often as this
//	                one, because a SIGTERM before that would be lost
//	eat             starts a process that takes memory until it is killed
//	exit=CODE       exits
//	term=CODE       from now on exits with CODE at SIGTERM (default 143)
//	term=ignore     from now on ignores SIGTERM, except for a line in the journal
//	linger=DURATION from now on takes this long to exit after SIGTERM
//	hold=NAME       from now on waits after SIGTERM, before it exits, until the file
//	                NAME is in /pod, and removes it
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// podDir is a folder of the host. Each pod has its own.
	podDir = "/pod"
	// dataDir is an emptyDir of the pod.
	dataDir = "/data"
	// poll is the time between two looks at a file. 26 actors that looked every 20 ms
	// took a quarter of the time of an emulated machine.
	poll = 100 * time.Millisecond
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "actor:", err)
		os.Exit(2)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 0:
		return errors.New("at least one LIFE is required")
	case (args[0] == "note" || args[0] == "fail") && len(args) == 3:
		d, err := time.ParseDuration(args[2])
		if err != nil {
			return err
		}
		// A runtime may run a hook before the first line of the container's process.
		if err := awaitJournal(func(journal []byte) bool { return started(journal, name()) }); err != nil {
			return err
		}
		if _, err := note(args[1]); err != nil {
			return err
		}
		time.Sleep(d)
		if _, err = note(args[1] + "-end"); err == nil && args[0] == "fail" {
			err = errors.New("it was told to fail")
		}
		return err
	case args[0] == "exists" && len(args) == 2:
		_, err := os.Stat(filepath.Join(podDir, args[1]))
		return err
	case args[0] == "grow" && len(args) == 1:
		for size := 1 << 20; ; size *= 2 {
			// The kernel gives a page when something is written to it.
			for i, memory := 0, make([]byte, size); i < size; i += os.Getpagesize() {
				memory[i] = 1
			}
		}
	}
	// This comes before the line in the journal, because a test may send a signal then.
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	n, err := note("start")
	if err != nil {
		return err
	}
	fmt.Printf("%s: start %d\n", name(), n)
	mark := filepath.Join(dataDir, fmt.Sprintf("%s.%d", name(), n))
	if err := os.WriteFile(mark, nil, 0o644); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	a := &actor{code: 128 + int(syscall.SIGTERM), start: n}
	go a.obey(terms)
	for step := range strings.FieldsSeq(args[min(n, len(args))-1]) {
		if err := a.act(step); err != nil {
			return err
		}
	}
	select {}
}

// actor is a container's only process.
type actor struct {
	sync.Mutex
	// start is the number of this start.
	start int
	// code is the exit code after SIGTERM. It is negative if SIGTERM is ignored.
	code   int
	linger time.Duration
	// hold is the name of a file, or empty.
	hold string
}

func (a *actor) act(step string) error {
	verb, object, _ := strings.Cut(step, "=")
	switch verb {
	case "sleep", "linger":
		d, err := time.ParseDuration(object)
		if err != nil {
			return err
		}
		if verb == "sleep" {
			time.Sleep(d)
			return nil
		}
		a.Lock()
		defer a.Unlock()
		a.linger = d
		return nil
	case "wait":
		await(object)
		return nil
	case "eat":
		return exec.Command("/proc/self/exe", "grow").Start()
	case "hold":
		a.Lock()
		defer a.Unlock()
		a.hold = object
		return nil
	case "after":
		return awaitJournal(func(journal []byte) bool { return starts(journal, object) >= a.start })
	case "exit", "term":
		code := -1
		if object != "ignore" {
			var err error
			if code, err = strconv.Atoi(object); err != nil {
				return err
			}
		}
		a.Lock()
		defer a.Unlock()
		if verb == "exit" {
			return end(code)
		}
		a.code = code
		return nil
	}
	return fmt.Errorf("unknown step %q", step)
}

func (a *actor) obey(terms <-chan os.Signal) {
	for range terms {
		a.Lock()
		if _, err := note("term"); err != nil {
			fmt.Fprintln(os.Stderr, "actor:", err)
		}
		if a.code >= 0 {
			time.Sleep(a.linger)
			if a.hold != "" {
				await(a.hold)
			}
			fmt.Fprintln(os.Stderr, "actor:", end(a.code))
		}
		a.Unlock()
		go func() {
			for {
				time.Sleep(100 * time.Millisecond)
				_, _ = note("alive")
			}
		}()
	}
}

// awaitJournal waits until done reports true for the journal.
func awaitJournal(done func(journal []byte) bool) error {
	for {
		journal, err := os.ReadFile(filepath.Join(podDir, "journal"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if done(journal) {
			return nil
		}
		time.Sleep(poll)
	}
}

// await waits until a file is in the pod's folder, and removes it.
func await(file string) {
	for os.Remove(filepath.Join(podDir, file)) != nil {
		time.Sleep(poll)
	}
}

// end exits. It returns only if it fails.
func end(code int) error {
	if _, err := note("exit:" + strconv.Itoa(code)); err != nil {
		return err
	}
	os.Exit(code)
	return nil
}

func name() string { return os.Getenv("CONTAINER") }

// starts returns how often a container has started according to the journal.
func starts(journal []byte, name string) (n int) {
	for event := range events(journal, name) {
		if event == "start" {
			n++
		}
	}
	return n
}

// started reports whether the last start of a container has not ended, according to the journal. It
// does not know of the end of a process that was killed.
func started(journal []byte, name string) (now bool) {
	for event := range events(journal, name) {
		now = event == "start" || now && !strings.HasPrefix(event, "exit:")
	}
	return now
}

// events returns the events of a container in the journal.
func events(journal []byte, name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range bytes.Lines(journal) {
			if f := bytes.Fields(line); len(f) == 4 && string(f[1]) == name && !yield(string(f[3])) {
				return
			}
		}
	}
}

// note appends a line to the journal: time in seconds, container, number of its
// start, event. It returns that number.
func note(event string) (int, error) {
	f, err := os.OpenFile(filepath.Join(podDir, "journal"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	// Only one container at a time reads and writes.
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return 0, err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	n := starts(text, name())
	if event == "start" {
		n++
	}
	now := time.Now()
	_, err = fmt.Fprintf(f, "%d.%06d %s %d %s\n", now.Unix(), now.Nanosecond()/1000, name(), n, event)
	return n, err
}
