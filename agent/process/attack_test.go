// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
)

// attackVariable is set to the name of an attack for a program that makes it, which is
// this executable in a container. It prints a line for what it can do.
const attackVariable = "PROCESS_TEST_ATTACK"

var attacks = map[string]func(){
	// Keys of the kernel outlive the pod.
	"keys": func() {
		try := func(name string, call, a, b uintptr) {
			text, _ := unix.BytePtrFromString(name)
			user, _ := unix.BytePtrFromString("user")
			args := [5]uintptr{a, b}
			if call != unix.SYS_KEYCTL {
				args = [5]uintptr{uintptr(unsafe.Pointer(user)), uintptr(unsafe.Pointer(text)), uintptr(unsafe.Pointer(text)), 1, ^uintptr(3)} // KEY_SPEC_USER_KEYRING
			}
			_, _, errno := syscall.Syscall6(call, args[0], args[1], args[2], args[3], args[4], 0)
			if errno != unix.EPERM {
				fmt.Println("could:", name, errno)
			}
			runtime.KeepAlive(text)
			runtime.KeepAlive(user)
		}
		try("add_key", unix.SYS_ADD_KEY, 0, 0)
		try("request_key", unix.SYS_REQUEST_KEY, 0, 0)
		const getKeyringID = 0
		try("keyctl", unix.SYS_KEYCTL, getKeyringID, ^uintptr(3))
	},
	// For a moment, a process of the sandbox may have the executable of the agent, or a file
	// from which a path leads to the machine.
	"processes": func() {
		for _, err := os.Stat("/tmp/end"); err != nil; _, err = os.Stat("/tmp/end") {
			links, _ := filepath.Glob("/proc/[0-9]*/exe")
			for _, link := range links {
				var stat unix.Stat_t
				if unix.Stat(link, &stat) == nil && fmt.Sprint(stat.Ino) == os.Getenv("INODE") {
					fmt.Println("could: see", link)
				}
			}
			files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
			for _, file := range files {
				if _, err := os.Stat(file + "/../root"); err == nil {
					fmt.Println("could: see /root from", file)
				}
			}
		}
	},
	"connect": func() {
		for _, address := range strings.Fields(os.Getenv("ADDRESSES")) {
			network, address, _ := strings.Cut(address, "=")
			if c, err := net.DialTimeout(network, address, time.Second); err == nil {
				c.Close()
				fmt.Println("could: connect to", address)
			}
		}
	},
	"share": func() {
		kept := allocate(200)
		time.Sleep(time.Hour)
		runtime.KeepAlive(kept)
	},
}

// allocate allocates and uses up to n MiB.
func allocate(n int) (kept [][]byte) {
	for range n {
		b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return kept
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		kept = append(kept, b)
	}
	return kept
}

// attack returns a container that makes an attack, and the directory of its program.
func attack(t *testing.T, name string, env ...v1.EnvVar) (c *v1.Container, dir string) {
	t.Helper()
	dir = outsideTmp(t)
	exe, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	program := filepath.Join(dir, "attack")
	require.NoError(t, os.WriteFile(program, exe, 0o755))
	require.NoError(t, os.Chmod(program, 0o755))
	return &v1.Container{Name: "c", Command: []string{program}, Env: append(env, v1.EnvVar{Name: attackVariable, Value: name})}, dir
}

// requireHarmless runs a container, and then a command in another one, which must print nothing.
func requireHarmless(t *testing.T, c *v1.Container, o Options) {
	t.Helper()
	p := newConfined(t, newSpec(c), o)
	i := p.run(c)
	require.Empty(t, p.output(c.Name))
	require.Zero(t, i.ExitCode, i.Message)
	other := sh("other", "exec sleep 1000")
	other.Env, other.VolumeMounts = c.Env, c.VolumeMounts
	id := p.start(other, 0)
	output, code, err := p.Exec(t.Context(), id, podspec.Expand(c.Command, c.Env))
	require.NoError(t, err)
	require.Zero(t, code)
	require.Empty(t, string(output))
}

// A volume must not hide the protection of /proc/sys. Validate refuses it; but the
// machine is safe without that.
func TestAttackProcSys(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("/proc/sys/" + name)
		require.NoError(t, err)
		return string(text)
	}
	for _, mountPath := range []string{"/proc", "/proc/sys", "/proc/sys/vm", "/data/link/sys", "/data"} {
		c := sh("c", `
			ln -s /proc /data/link
			mount -t proc proc /data
			for f in vm/stat_interval kernel/core_pattern kernel/hostname vm/drop_caches; do for in in /proc/sys /data /data/sys /data/link/sys; do
				[ -e $in/$f ] && sh -c "v=\$(cat $in/$f); echo \"\${v:-3}\" >$in/$f" && echo "could: $in/$f"
			done; done 2>/dev/null
			true`)
		c.Command[2] = "exec 2>/dev/null;" + c.Command[2]
		mounted(c, v1.VolumeMount{Name: "data", MountPath: mountPath})
		spec := newSpec(c)
		if errs := Validate(spec, Options{}); strings.HasPrefix(mountPath, "/proc") {
			require.Len(t, errs, 1)
			require.Equal(t, "spec.containers[0].volumeMounts[0].mountPath", errs[0].Field)
		}
		before := []string{read("vm/stat_interval"), read("kernel/core_pattern"), read("kernel/hostname")}
		p := newConfined(t, spec)
		p.run(c) // It may fail to start.
		for _, line := range p.output("c") {
			require.NotContains(t, line, "could:", mountPath)
		}
		require.Equal(t, before, []string{read("vm/stat_interval"), read("kernel/core_pattern"), read("kernel/hostname")})
	}
	for _, mountPath := range []string{"/sys", "/sys/fs/cgroup", "/dev", "/dev/pts", "/x/../proc"} {
		require.Len(t, Validate(newSpec(mounted(sh("c", "true"), v1.VolumeMount{Name: "data", MountPath: mountPath})), Options{}), 1, mountPath)
	}
	for _, mountPath := range []string{"/dev/shm", "/dev/shm/x", "/process", "/devices"} {
		require.Empty(t, Validate(newSpec(mounted(sh("c", "true"), v1.VolumeMount{Name: "data", MountPath: mountPath})), Options{}), mountPath)
	}
}

// With a user namespace, a pod could mount the machine's cgroups and kill what is in them.
func TestAttackNamespaces(t *testing.T) {
	c := sh("c", `
		can() { "$@" >/dev/null 2>&1 && echo "could: $*"; }
		can unshare -U true
		can unshare -Ur true
		can unshare -UrmC mount -t cgroup2 none /tmp
		can unshare -UrmC mount -t cgroup -o pids none /tmp
		can unshare -m true
		can unshare -n true
		can mount -t cgroup2 none /tmp
		can mount -t tmpfs none /tmp
		can bwrap --dev-bind / / true
		[ -e /sys/fs/cgroup ] && echo "could: see /sys/fs/cgroup"
		grep -q '^NoNewPrivs:.1' /proc/self/status || echo "could: gain privileges"
		grep '^Cap[^B]' /proc/self/status | grep -v '0000000000000000$'
		grep -qs cgroup /proc/self/mountinfo && echo "could: see cgroups"
		true`)
	requireHarmless(t, c, Options{})
}

func TestAttackKeys(t *testing.T) {
	c, dir := attack(t, "keys")
	requireHarmless(t, c, Options{HostDirs: []string{dir}, MemoryLimit: -1})
}

// A process of the sandbox in the PID namespace of a container could be used to overwrite
// the agent's executable, or to reach the files of the machine.
func TestAttackProcesses(t *testing.T) {
	var stat unix.Stat_t
	require.NoError(t, unix.Stat("/proc/self/exe", &stat))
	c, dir := attack(t, "processes", v1.EnvVar{Name: "INODE", Value: fmt.Sprint(stat.Ino)})
	p := newConfined(t, newSpec(c), Options{HostDirs: []string{dir}, MemoryLimit: -1})
	id := p.start(c, 0)
	for range 30 {
		_, _, err := p.Exec(t.Context(), id, []string{"true"})
		require.NoError(t, err)
	}
	_, _, err := p.Exec(t.Context(), id, []string{"touch", "/tmp/end"})
	require.NoError(t, err)
	require.Zero(t, p.exited("c").ExitCode)
	require.Empty(t, p.output("c"))
}

// The FIFOs and sockets of the machine.
func TestAttackSockets(t *testing.T) {
	fifos := []string{}
	addresses := []string{}
	listen := func(network, address string) {
		l, err := net.Listen(network, address)
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		if network == "unix" && address[0] != '@' {
			require.NoError(t, os.Chmod(address, 0o777))
		}
		addresses = append(addresses, network+"="+l.Addr().String())
	}
	listen("tcp", "127.0.0.1:0")
	listen("unix", "@"+newMark(t))
	wd, err := os.Getwd()
	require.NoError(t, err)
	for _, parent := range []string{"/var/tmp", "/tmp", "/run", "/home", "/root", "/dev/shm", "/srv", wd} {
		dir, err := os.MkdirTemp(parent, "attack")
		if err != nil {
			continue // An ordinary user.
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		require.NoError(t, os.Chmod(dir, 0o777))
		fifo := filepath.Join(dir, "fifo")
		require.NoError(t, syscall.Mkfifo(fifo, 0o666))
		require.NoError(t, os.Chmod(fifo, 0o666))
		f, err := os.OpenFile(fifo, os.O_RDWR, 0) // So that a write does not block.
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		fifos = append(fifos, fifo)
		listen("unix", filepath.Join(dir, "socket"))
	}
	require.NotEmpty(t, fifos)
	c, dir := attack(t, "connect", v1.EnvVar{Name: "ADDRESSES", Value: strings.Join(addresses, " ")}, v1.EnvVar{Name: "FIFOS", Value: strings.Join(fifos, " ")})
	requireHarmless(t, c, Options{HostDirs: []string{dir}, MemoryLimit: -1})
	write := sh("c", `for f in $FIFOS; do [ -p $f ] && echo x >$f && echo "could: write to $f"; done; true`)
	write.Env = c.Env
	requireHarmless(t, write, Options{})
}

// bwrap makes the mount points in a volume, and follows the links there. While it does so,
// the files of the machine are in /oldroot.
func TestAttackMountPoints(t *testing.T) {
	out := outside(t)
	before := snapshot(t, out)
	data := v1.VolumeMount{Name: "data", MountPath: "/data"}
	for _, link := range []string{"/oldroot" + out, "../oldroot" + out, "../../oldroot" + out} {
		c := mounted(sh("c", "true"), data, v1.VolumeMount{Name: "other", MountPath: "/data/link/new"}, v1.VolumeMount{Name: "data", SubPath: "file", MountPath: "/data/link/file"})
		init := mounted(sh("init", "touch /data/file; ln -s $LINK /data/link"), data)
		init.Env = []v1.EnvVar{{Name: "LINK", Value: link}}
		p := newConfined(t, newSpec(init, c))
		require.Zero(t, p.run(init).ExitCode)
		p.run(c) // It may fail to start.
		require.Equal(t, before, snapshot(t, out), link)
	}
}

// A container can stop the processes of the sandbox in its PID namespace. Then the pod can
// still be stopped.
func TestAttackStop(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as the limit")
	}
	c := sh("c", "echo ready; while :; do for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = 1 ] || kill -STOP $p; done 2>/dev/null; done")
	p := newConfined(t, newSpec(c))
	id := p.start(c, 0)
	require.Equal(t, "ready", p.lineOf("c"))
	// On a busy machine a command may end before the container has found its process.
	var err error
	for tries := 0; err == nil && tries < 1000; tries++ {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, _, err = p.Exec(ctx, id, []string{"true"})
		cancel()
	}
	require.Error(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, p.Stop(ctx, id, 0))
	require.Zero(t, p.run(sh("d", "true")).ExitCode, "the pod goes on")
}

// As in the kubelet, these volumes are read-only for all containers.
func TestAttackReadOnlyVolumes(t *testing.T) {
	c := mounted(sh("c", `for d in /configmap /secret /projected /downward; do
			cat $d/key >/dev/null || echo "cannot read $d"
			for a in "touch $d/new" "rm -f $d/key" "chmod 600 $d/key" "mv $d/key $d/x"; do $a 2>/dev/null && echo "could: $a"; done
			sh -c "echo >$d/key" 2>/dev/null && echo "could: write to $d"
		done; true`))
	for _, name := range []string{"configmap", "secret", "projected", "downward"} {
		mounted(c, v1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	spec := newSpec(c)
	for i, source := range []v1.VolumeSource{
		{ConfigMap: &v1.ConfigMapVolumeSource{}}, {Secret: &v1.SecretVolumeSource{}}, {Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{ConfigMap: &v1.ConfigMapProjection{}}}}},
		{DownwardAPI: &v1.DownwardAPIVolumeSource{}},
	} {
		spec.Spec.Volumes[i].VolumeSource = source
	}
	dir := t.TempDir()
	newConfined(t, newSpec())
	p := newUnmade(t, spec, dir, Options{})
	files := podspec.Files{}
	for _, v := range spec.Spec.Volumes {
		files[v.Name] = map[string]podspec.File{"key": {Data: []byte("value"), Mode: 0o400}}
	}
	require.NoError(t, files.Write(dir))
	require.NoError(t, p.CreateSandbox(t.Context()))
	require.Zero(t, p.run(c).ExitCode)
	require.Empty(t, p.output("c"))
}

func TestAttackForkBomb(t *testing.T) {
	const limit = 60
	for _, by := range []string{"command", "Exec"} {
		t.Run(by, func(t *testing.T) {
			// A shell ends when it cannot fork, and leaves what it has started.
			bomb := "sleep 1000 & (while :; do sleep 1000 & done) 2>/dev/null; wait"
			c := sh("c", bomb)
			m := mark(t, c)
			p := newConfined(t, newSpec(c), Options{PIDsLimit: limit})
			if by == "Exec" {
				c.Command[2] = "exec sleep 1000"
			}
			id := p.start(c, 0)
			if by == "Exec" {
				p.Exec(t.Context(), id, []string{"sh", "-c", "(" + bomb + ") >/dev/null 2>&1 &"})
			}
			require.Eventually(t, func() bool { return len(marked(m)) > limit/3 }, time.Minute, time.Millisecond)
			for range 100 {
				require.LessOrEqual(t, len(marked(m)), limit)
			}
			require.NoError(t, p.Stop(t.Context(), id, time.Millisecond))
			require.Empty(t, marked(m))
			require.Zero(t, p.run(sh("d", "true")).ExitCode, "the pod goes on")
		})
	}
	p := newConfined(t, newSpec())
	p.run(sh("c", "awk '/^Max (processes|data size)/{print $(NF-1)}' /proc/self/limits"))
	memory := strconv.FormatInt(DefaultMemoryLimit, 10)
	if p.sandbox.inCgroup {
		memory = "unlimited"
	}
	require.Equal(t, []string{memory, strconv.Itoa(DefaultPIDsLimit)}, p.output("c"))
}

func TestAttackMemory(t *testing.T) {
	// tail keeps all of it.
	p := newConfined(t, newSpec(), Options{MemoryLimit: 512 << 20})
	p.run(sh("c", "head -c 1000000000 /dev/zero | tail -c 1000000000 2>/dev/null | wc -c"))
	require.NotEqual(t, []string{"1000000000"}, p.output("c"))
	// All processes together.
	c, dir := attack(t, "share")
	c.Command = []string{"sh", "-c", "for n in 1 2 3 4; do " + c.Command[0] + " || echo killed & done; wait"}
	p = newConfined(t, newSpec(c), Options{HostDirs: []string{dir}, MemoryLimit: 512 << 20})
	if !p.sandbox.inCgroup {
		t.Log("not tested: all processes together, for which there is no cgroup here")
	} else {
		p.start(c, 0)
		require.Contains(t, p.lineOf("c"), "illed") // The shell may say so too.
	}
	files := sh("c", `for d in /tmp /dev/shm /dev / /etc /run; do head -c 300000000 /dev/zero 2>/dev/null >$d/file && echo "could: fill $d"; done 2>/dev/null; true`)
	requireHarmless(t, files, Options{MemoryLimit: 512 << 20})
}

// The environment of a container must not affect bwrap, which runs outside.
func TestAttackEnvironment(t *testing.T) {
	c := &v1.Container{Name: "c", Command: []string{"env"}, Env: []v1.EnvVar{{Name: "LD_PRELOAD", Value: "/no/such/library"}}}
	p := newConfined(t, newSpec(c))
	p.run(c)
	var errors []string
	for _, line := range p.output("c") {
		if strings.HasPrefix(line, "ERROR: ld.so") {
			errors = append(errors, line)
		}
	}
	require.Len(t, errors, 1, "that of the container itself")
	require.Contains(t, p.output("c"), "LD_PRELOAD=/no/such/library")
}

// bwrap gets its options separated by NULs. podspec.Environment refuses one in a variable.
func TestAttackOptions(t *testing.T) {
	const bind = "x\x00--bind\x00/\x00/machine"
	for name, change := range map[string]func(*v1.Container){
		"workingDir": func(c *v1.Container) { c.WorkingDir = "/\x00--bind\x00/\x00/machine" },
		"mountPath":  func(c *v1.Container) { c.VolumeMounts[0].MountPath = "/data\x00--bind\x00/\x00/machine" },
		"command":    func(c *v1.Container) { c.Command = append(c.Command, bind) },
	} {
		c := mounted(sh("c", "ls -d /machine"), v1.VolumeMount{Name: "data", MountPath: "/data"})
		change(c)
		p := newConfined(t, newSpec(c))
		require.NotZero(t, p.run(c).ExitCode, name)
		require.NotContains(t, p.output("c"), "/machine", name)
	}
}
