// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerRuntime is what differs between container runtimes.
type containerRuntime interface {
	// build builds the runtime into bin, unless bin already has it.
	build(ctx context.Context, source, bin string) error
	// needs returns programs that must be on PATH, and the Debian packages that have
	// them. built is false if build will run on this machine.
	needs(built bool) map[string]string
	// configure writes the configuration, and returns the command that runs the runtime.
	// The folder cni has the configuration of the pods' network.
	configure(n *Node, cni string) (command []string, err error)
	// load loads an image that the harness packed, under its own name. If it is loaded
	// already, load gives it another name.
	load(n *Node, image Image, reference string) error
	// state returns the folders of a node that a reboot of the machine empties.
	state(dir string) []string
	// cgroups returns paths in a cgroup file system, of the cgroups that the container or
	// sandbox with an ID may have.
	cgroups(id string) []string
}

// DefaultRuntime is the name of the runtime of a spec without one.
const DefaultRuntime = "containerd"

// runtimes are the container runtimes that a node can have.
var runtimes = map[string]containerRuntime{
	DefaultRuntime: containerd{},
	"crio":         crio{oci: "crun"},
	"crio-runc":    crio{oci: "runc"},
}

// runtimeNamed returns the runtime with a name. Nothing stands for the default.
func runtimeNamed(name string) (containerRuntime, error) {
	if name == "" {
		name = DefaultRuntime
	}
	if r, ok := runtimes[name]; ok {
		return r, nil
	}
	return nil, fmt.Errorf("no container runtime is named %q; there are: %s", name, strings.Join(slices.Sorted(maps.Keys(runtimes)), ", "))
}

// pinned are programs to build from one of this module's folders, whose go.mod pins
// their version.
type pinned struct {
	name, folder, tags string
	programs           []string
}

// network has the network plugins of pods, which every runtime needs.
var network = pinned{name: "network plugins", folder: "containerd", programs: []string{
	"github.com/containernetworking/plugins/plugins/ipam/host-local",
	"github.com/containernetworking/plugins/plugins/main/bridge",
	"github.com/containernetworking/plugins/plugins/main/loopback",
}}

// jobset is the controller of JobSets.
var jobset = pinned{name: "JobSet's controller", folder: "jobset", programs: []string{"sigs.k8s.io/jobset"}}

// JobSetCRD is the name of the file in the folder of programs that defines JobSets.
const JobSetCRD = "jobsets.yaml"

// buildJobSet builds the controller, and copies the definition that belongs to it.
func buildJobSet(ctx context.Context, source, bin string) error {
	if err := jobset.build(ctx, source, bin); err != nil {
		return err
	}
	module := filepath.Join(source, jobset.folder)
	// The module may have been removed since the build.
	if err := goCommand(ctx, module, "mod", "download", jobset.programs[0]); err != nil {
		return err
	}
	dir, err := buildCommand(ctx, module, "go", "list", "-m", "-f={{.Dir}}", jobset.programs[0])
	if err != nil {
		return err
	}
	crd, err := os.ReadFile(filepath.Join(dir, "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(bin, JobSetCRD), crd, 0o644)
}

// build builds the programs into bin, unless bin already has this version of them.
func (p pinned) build(ctx context.Context, source, bin string) error {
	module := filepath.Join(source, p.folder)
	stamp, err := p.stamp(module)
	if err != nil {
		return err
	}
	stampFile := filepath.Join(bin, strings.ReplaceAll(p.name, " ", "-")+".stamp")
	if have, err := os.ReadFile(stampFile); err == nil && string(have) == stamp {
		complete := true
		for _, program := range p.programs {
			if _, err := os.Stat(filepath.Join(bin, path.Base(program))); err != nil {
				complete = false
			}
		}
		if complete {
			return nil
		}
	}
	Progress("building %s (only once, up to three minutes)", p.name)
	args := append([]string{"build", "-trimpath", "-tags", p.tags, "-o", bin + "/"}, p.programs...)
	if err := goCommand(ctx, module, args...); err != nil {
		return fmt.Errorf("building %s: %w", p.name, err)
	}
	return os.WriteFile(stampFile, []byte(stamp), 0o644)
}

// stamp returns a string that changes with everything that would change the binaries.
func (p pinned) stamp(module string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), p)
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("finding the version of %s: %w", p.name, err)
		}
		h.Write(data)
	}
	return fmt.Sprintf("%x\n", h.Sum(nil)), nil
}

// goCommand runs the go command in a module, without cgo so that the programs also
// run in containers.
func goCommand(ctx context.Context, module string, args ...string) error {
	_, err := buildCommand(ctx, module, "go", args...)
	return err
}

// buildCommand runs a command in a folder. An interrupted go command would leave its
// compilers and its temporary folder behind, so it runs in a process group and a
// folder of its own.
func buildCommand(ctx context.Context, dir, program string, args ...string) (_ string, err error) {
	tmp, err := os.MkdirTemp("", "kubelet-backoff-build-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOTMPDIR="+tmp, "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// StartRuntime starts the container runtime and loads the images.
func (n *Node) StartRuntime() (err error) {
	cni := n.cni()
	if err := os.MkdirAll(cni, 0o755); err != nil {
		return err
	}
	// Runtimes look for their helpers on PATH.
	if err := os.Setenv("PATH", n.Spec.Bin+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		return err
	}
	if n.Spec.Network {
		_, _, err = n.SetUpNetwork()
	} else {
		err = os.WriteFile(filepath.Join(cni, "unused.conflist"), []byte(unusedNetwork), 0o644)
	}
	if err != nil {
		return err
	}
	if n.runtimeCommand, err = n.runtime.configure(n, cni); err != nil {
		return err
	}
	if err := n.RunRuntime(); err != nil {
		return err
	}
	for _, image := range images {
		if err := n.Import(image); err != nil {
			return err
		}
	}
	return nil
}

// Import imports an image that the harness packed.
func (n *Node) Import(image Image) error { return n.runtime.load(n, image, image.Reference) }

// Tag gives the image of actor one more name.
func (n *Node) Tag(reference string) error { return n.runtime.load(n, actorImage, reference) }

// runtimeName is the name of the runtime's process, and runtimeLog that of its log.
const (
	runtimeName = "runtime"
	runtimeLog  = runtimeName + ".log"
)

// RunRuntime starts or restarts the container runtime, and returns when it answers.
func (n *Node) RunRuntime() (err error) {
	if n.RuntimeProcess, err = n.Start(runtimeName, n.runtimeCommand[0], n.runtimeCommand[1:]...); err != nil {
		return err
	}
	conn, err := n.DialRuntime()
	if err != nil {
		return err
	}
	defer conn.Close()
	return Await(n.ctx, "an answer of the container runtime", startLimit, func(ctx context.Context) error {
		_, err := runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{})
		return err
	})
}

var loggedID = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// loggedIDs returns the IDs of the containers and sandboxes of a node, also of those that
// its runtime has removed: only its log has all of them.
func loggedIDs(dir string) (ids []string, err error) {
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "logs", filepath.Base(dir)+"-*", runtimeLog))
	if err != nil {
		return nil, err
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			return nil, err
		}
		ids = append(ids, loggedID.FindAllString(string(text), -1)...)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
