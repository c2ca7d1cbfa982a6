// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/agent/process/internal/shim"
)

// mounted adds a mount to a container.
func mounted(c *v1.Container, mounts ...v1.VolumeMount) *v1.Container {
	c.VolumeMounts = append(c.VolumeMounts, mounts...)
	return c
}

// snapshot returns the files in a folder with modes, owners and content.
func snapshot(t *testing.T, dir string) []string {
	var all []string
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		stat := info.Sys().(*syscall.Stat_t)
		line := fmt.Sprintf("%s %s %d:%d %d", path, info.Mode(), stat.Uid, stat.Gid, info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			line += " " + string(content)
		}
		all = append(all, line)
		return nil
	}))
	return all
}

// outside is a folder that no container may change.
func outside(t *testing.T) string {
	dir := outsideTmp(t)
	require.NoError(t, os.Chmod(dir, 0o777))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("kept"), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sub", "file"), []byte("kept"), 0o666))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o666))
	return dir
}

// hostile tries to change the machine. Everything has to fail; a line of output names
// what did not.
const hostile = `
	can() { "$@" >/dev/null 2>&1 && echo "could: $*"; }
	can touch $OUT/new
	can sh -c ': >$OUT/file'
	can rm -rf $OUT/sub $OUT/file
	can mkdir $OUT/dir
	can chmod 700 $OUT/sub
	can chown 1 $OUT/file
	can mv $OUT/file $OUT/other
	can ln $OUT/file $OUT/hard
	can touch -d 2001-01-01 $OUT/file
	can rm -rf /data/../$(dirname $OUT)/$(basename $OUT)
	ln -s $OUT /data/link; can sh -c ': >/data/link/file'; can rm -rf /data/link/; can touch /data/link/new
	can touch /new; can mkdir /new; can touch /etc/new /usr/new /var/tmp/new /root/new
	can touch /readonly/new; can rm -rf /readonly/file; can chmod 700 /readonly; can sh -c ': >/readonly/file'
	can mount -o remount,rw /; can mount -o remount,rw,bind /; can mount -o remount,rw,bind /readonly
	can umount /readonly; can umount -l /proc; can touch /proc/x /dev/x; can ls /dev/shm/volumes
	can mount -t tmpfs none /data; can mount --bind $OUT /data
	can mknod /data/disk b 8 0; can mknod /data/mem c 1 1; can mknod /tmp/disk b 8 0
	for f in /proc/sys/kernel/core_pattern /proc/sys/vm/swappiness /sys/kernel/mm/ksm/run; do can sh -c "v=\$(cat $f) && echo \"\$v\" >$f"; done
	can sh -c ': >>/proc/sysrq-trigger'; can ls /proc/1/root/proc/2/root/proc/1/cwd/x
	can unshare -m mount -o remount,rw,bind /
	can unshare -Urm mount -o remount,rw,bind /
	can unshare -Urm mount -o remount,rw,bind /readonly
	can unshare -Urm mount -t proc proc /proc
	can unshare -Urm sh -c 'mkdir /tmp/r && mount --rbind / /tmp/r && touch /tmp/r$OUT/new'
	can chroot / touch $OUT/new
	can nsenter -t 1 -m -p touch $OUT/new
	can kill -KILL $AGENT
	can sh -c ': >/dev/sda'; can sh -c ': >/dev/vda'; can sh -c 'head -c 1 /dev/vda | grep .'; can sh -c 'head -c 1 /dev/sda | grep .'; can chmod 666 /dev/null
	can hostname changed
	for p in /proc/[0-9]*; do [ "$(readlink $p/exe)" = "$AGENTEXE" ] && echo "sees $p"; done
	awk '$6 !~ /^ro/ && $5 !~ "^(/data|/tmp|/proc|/dev/(pts|shm|null|zero|full|u?random|tty))$" {print "can be written to: " $5}' /proc/self/mountinfo
	echo end`

func TestHostile(t *testing.T) {
	out := outside(t)
	before := snapshot(t, out)
	c := mounted(sh("c", hostile), v1.VolumeMount{Name: "data", MountPath: "/data"}, v1.VolumeMount{Name: "readonly", MountPath: "/readonly", ReadOnly: true},
		v1.VolumeMount{Name: "data", MountPath: "/data/readonly", SubPath: "within", ReadOnly: true})
	exe, err := os.Executable()
	require.NoError(t, err)
	c.Env = []v1.EnvVar{{Name: "OUT", Value: out}, {Name: "AGENT", Value: strconv.Itoa(os.Getpid())}, {Name: "AGENTEXE", Value: exe}}
	p := newConfined(t, newSpec(c), Options{HostDirs: []string{out}})
	readOnly := filepath.Join(p.dir, "volumes", "readonly")
	require.NoError(t, os.WriteFile(filepath.Join(readOnly, "file"), []byte("kept"), 0o666))
	volume := snapshot(t, readOnly)
	null, err := os.Stat("/dev/null")
	require.NoError(t, err)
	m := mark(t, c)
	mounts := mountsOf(t)
	p.run(c)
	require.Equal(t, []string{"end"}, p.output("c"))
	require.Equal(t, before, snapshot(t, out))
	require.Equal(t, volume, snapshot(t, readOnly))
	after, err := os.Stat("/dev/null")
	require.NoError(t, err)
	require.Equal(t, null.Mode(), after.Mode())
	require.Empty(t, marked(m))
	require.Equal(t, mounts, mountsOf(t))
}

// mountsOf returns the machine's mounts.
func mountsOf(t *testing.T) string {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	return string(mounts)
}

func TestVolumes(t *testing.T) {
	mounts := []v1.VolumeMount{
		{Name: "data", MountPath: "/data"}, {Name: "cache", MountPath: "data/cache/"}, {Name: "data", MountPath: "/etc/app/deep", SubPath: "a/b"},
		{Name: "cache", MountPath: "/tmp/cache"}, {Name: "cache", MountPath: "/usr/share", ReadOnly: true}, {Name: "data", MountPath: "/etc/passwd", SubPath: "file"},
	}
	a := mounted(sh("a", `ls /data; echo here >$FILE; cat /usr/share/file /tmp/cache/file; echo deep >/etc/app/deep/x; cat /data/a/b/x; mkdir /data/locked; touch /data/locked/file; chmod 0 /data/locked
		ls /etc/hostname /usr/bin/env; touch /tmp/own; cat /etc/passwd; pwd`), mounts...)
	a.WorkingDir = "/data"
	b := mounted(sh("b", `ls /tmp; pwd; cat "/data/cache/file" $FILE; exec sleep 1000`), mounts...)
	b.WorkingDir = "/data"
	for _, c := range []*v1.Container{a, b} {
		c.Env = []v1.EnvVar{{Name: "FILE", Value: "/data/cache/file"}}
	}
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "volumes/data/old"), 0o755))
	newConfined(t, newSpec())
	p := newUnmade(t, newSpec(a, b), dir, Options{})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "volumes/data/file"), []byte("a file\n"), 0o644))
	require.NoError(t, p.CreateSandbox(t.Context()))
	require.Zero(t, p.run(a).ExitCode)
	require.Equal(t, []string{"a", "cache", "file", "here", "here", "deep", "/etc/hostname", "/usr/bin/env", "a file", "/data"}, p.output("a"))
	id := p.start(b, 0)
	require.Eventually(t, func() bool { return len(p.output("b")) == 4 }, time.Minute, time.Millisecond)
	require.Equal(t, []string{"cache", "/data", "here", "here"}, p.output("b"))
	output, code, err := p.Exec(t.Context(), id, []string{"cat", "/data/cache/file"})
	require.NoError(t, err)
	require.Zero(t, code)
	require.Equal(t, "here\n", string(output))
	require.NoError(t, p.Remove(t.Context()))
	require.NoDirExists(t, filepath.Join(dir, "volumes"))
	require.FileExists(t, filepath.Join(dir, "logs/b/0.log"))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// Neither a link nor .. leads out of a volume.
func TestSubPathStaysInTheVolume(t *testing.T) {
	out := outside(t)
	before := snapshot(t, out)
	for link, target := range map[string]string{"absolute": out, "dots": "../../../../../../../../.." + out, "volume": "../other"} {
		c := mounted(sh(link, "rm -rf /sub/*; touch /sub/new"), v1.VolumeMount{Name: "data", MountPath: "/sub", SubPath: link})
		p := newConfined(t, newSpec(c, mounted(sh("other", "true"), v1.VolumeMount{Name: "other", MountPath: "/other"})))
		// A link from before the start of the pod, and one that a container makes.
		path := filepath.Join(p.dir, "volumes", "data", link)
		require.NoError(t, os.Symlink(target, path))
		i := p.run(c)
		assert.Equal(t, int32(agent.ExitCodeStartError), i.ExitCode, link)
		assert.Contains(t, i.Message, "volume data/"+link+": subPath: open "+link+": invalid cross-device link")
	}
	c := mounted(sh("c", "touch /sub/new"), v1.VolumeMount{Name: "data", MountPath: "/sub", SubPath: "../other"})
	p := newConfined(t, newSpec(c, mounted(sh("other", "true"), v1.VolumeMount{Name: "other", MountPath: "/other"})))
	require.Equal(t, int32(agent.ExitCodeStartError), p.run(c).ExitCode)
	require.Equal(t, before, snapshot(t, out))
}

func TestReadOnlyRootFilesystem(t *testing.T) {
	c := mounted(sh("c", "touch /tmp/a && echo tmp; touch /var/tmp/a && echo var; touch /data/a && echo data; touch /tmp/sub/a && echo sub; echo end"),
		v1.VolumeMount{Name: "data", MountPath: "/data"}, v1.VolumeMount{Name: "data", MountPath: "/tmp/sub"})
	c.Command[2] = "exec 2>/dev/null;" + c.Command[2]
	p := newConfined(t, newSpec(c))
	p.run(c)
	require.Equal(t, []string{"tmp", "data", "sub", "end"}, p.output("c"))
	c.Name, c.SecurityContext = "d", &v1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
	p.run(c)
	require.Equal(t, []string{"data", "sub", "end"}, p.output("d"))
}

func TestUsers(t *testing.T) {
	const show = "id -u; id -g; id -G; grep -c '^CapEff:.*[1-9a-f]' /proc/self/status; touch /data/$(id -u) && echo wrote; true"
	c := mounted(sh("c", show), v1.VolumeMount{Name: "data", MountPath: "/data"})
	c.SecurityContext = &v1.SecurityContext{RunAsUser: ptr.To(int64(4711)), RunAsGroup: ptr.To(int64(4712)), RunAsNonRoot: ptr.To(true)}
	spec := newSpec(c)
	spec.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To(int64(4714))}
	require.Empty(t, Validate(spec, Options{}))
	p := newConfined(t, spec)
	p.run(c)
	require.Equal(t, []string{"4711", "4712", "4712", "0", "wrote"}, p.output("c"))
	info, err := os.Stat(filepath.Join(p.dir, "volumes", "data", "4711"))
	require.NoError(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	want := []int{os.Getuid(), os.Getgid()}
	if want[0] == 0 {
		want = []int{shim.Nobody, shim.Nobody}
	}
	require.Equal(t, want, []int{int(owner.Uid), int(owner.Gid)})
	id := p.start(&v1.Container{Name: "d", Command: []string{"sleep", "1000"}, SecurityContext: c.SecurityContext}, 0)
	output, _, err := p.Exec(t.Context(), id, []string{"id", "-u"})
	require.NoError(t, err)
	require.Equal(t, "4711\n", string(output))

	// The containers of a pod may have several users. All can write to its files.
	other := mounted(sh("e", show), v1.VolumeMount{Name: "data", MountPath: "/data"})
	other.SecurityContext = &v1.SecurityContext{RunAsUser: ptr.To(int64(0)), RunAsGroup: ptr.To(int64(0))}
	other.Command[2] += "; echo >/data/4711 && echo overwrote"
	p.run(other)
	require.Equal(t, []string{"0", "0", "0", "0", "wrote", "overwrote"}, p.output("e"))
}

func TestValidate(t *testing.T) {
	root := os.Geteuid() == 0
	context := func(sc v1.SecurityContext) *v1.Pod {
		c := sh("c", "true")
		c.SecurityContext = &sc
		return newSpec(c)
	}
	other := ptr.To(int64(4711))
	for _, tc := range []struct {
		name                 string
		pod                  *v1.Pod
		confined, unconfined string // the field that is refused
	}{
		{"nothing", newSpec(sh("c", "true")), "", ""},
		{"volume", newSpec(mounted(sh("c", "true"), v1.VolumeMount{Name: "data", MountPath: "/data"})), "", "spec.containers[0].volumeMounts[0]"},
		{"read-only", context(v1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}), "", "spec.containers[0].securityContext.readOnlyRootFilesystem"},
		{"user", context(v1.SecurityContext{RunAsUser: other}), "", whereNot(root, "spec.containers[0].securityContext.runAsUser")},
		{"group", context(v1.SecurityContext{RunAsGroup: other}), "", whereNot(root, "spec.containers[0].securityContext.runAsGroup")},
		{"privileged", context(v1.SecurityContext{Privileged: ptr.To(true)}), "spec.containers[0].securityContext.privileged", ""},
		{"added", context(v1.SecurityContext{Capabilities: &v1.Capabilities{Add: []v1.Capability{"KILL", "SYS_ADMIN"}}}), "spec.containers[0].securityContext.capabilities.add[0]", "spec.containers[0].securityContext.capabilities"},
		{"not root", context(v1.SecurityContext{RunAsNonRoot: ptr.To(true)}), whereNot(!root, "spec.containers[0].securityContext.runAsNonRoot"), whereNot(!root, "spec.containers[0].securityContext.runAsNonRoot")},
		{"host", &v1.Pod{Spec: v1.PodSpec{HostPID: true}}, "spec.hostPID", ""},
	} {
		for confined, want := range map[bool]string{true: tc.confined, false: tc.unconfined} {
			var fields []string
			for _, err := range Validate(tc.pod, Options{Unconfined: !confined}) {
				fields = append(fields, err.Field)
			}
			if want == "" {
				assert.Empty(t, fields, "%s, confined: %v", tc.name, confined)
			} else {
				assert.Contains(t, fields, want, "%s, confined: %v", tc.name, confined)
			}
		}
	}
	two := newSpec(sh("a", "true"), sh("b", "true"))
	two.Spec.Containers[1].SecurityContext = &v1.SecurityContext{RunAsUser: other}
	require.Empty(t, Validate(two, Options{}))
}

func whereNot(not bool, field string) string {
	if not {
		return ""
	}
	return field
}

// A killed agent leaves nothing, whatever else is killed, in any order.
func TestSIGKILL(t *testing.T) {
	newConfined(t, newSpec())
	mounts := mountsOf(t)
	for name, kill := range map[string]func(agent, parent int){
		"agent":  func(agent, _ int) { syscall.Kill(agent, syscall.SIGKILL) },
		"parent": func(_, parent int) { syscall.Kill(parent, syscall.SIGKILL) },
		"both": func(agent, parent int) {
			syscall.Kill(parent, syscall.SIGKILL)
			syscall.Kill(agent, syscall.SIGKILL)
		},
		"stopped": func(agent, parent int) {
			syscall.Kill(parent, syscall.SIGSTOP)
			syscall.Kill(agent, syscall.SIGKILL)
			syscall.Kill(parent, syscall.SIGCONT)
		},
	} {
		t.Run(name, func(t *testing.T) {
			agent, mark := startAgent(t, true)
			parent, err := strconv.Atoi(childrenOf(agent.Process.Pid)[0])
			require.NoError(t, err)
			kill(agent.Process.Pid, parent)
			requireGone(t, mark)
			requireNoProcess(t, strconv.Itoa(parent))
			require.Equal(t, mounts, mountsOf(t))
		})
	}
}

// The agent is killed during starts, at any point.
func TestSIGKILLInTheMiddle(t *testing.T) {
	newConfined(t, newSpec())
	for n := range 20 {
		mark := newMark(t)
		cmd := exec.Command("/proc/self/exe", mark)
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), agentDir+"="+cmd.Dir, agentConfined+"=yes", agentStarts+"=yes")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		io.ReadFull(out, make([]byte, 1+n)) // A byte for each start that is tried.
		parents := childrenOf(cmd.Process.Pid)
		require.NoError(t, cmd.Process.Kill())
		cmd.Wait()
		requireGone(t, mark)
		for _, pid := range parents {
			requireNoProcess(t, pid)
		}
	}
}

// The tests of confinement pass for an ordinary user.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is one")
	}
	newConfined(t, newSpec())
	dir := outsideTmp(t)
	require.NoError(t, os.Chmod(dir, 0o777))
	exe, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	test := filepath.Join(dir, "process.test")
	require.NoError(t, os.WriteFile(test, exe, 0o755))
	require.NoError(t, os.Chmod(test, 0o755))
	const nobody = 65534
	names := []string{"TestHostile", "TestVolumes", "TestSubPathStaysInTheVolume", "TestReadOnlyRootFilesystem", "TestUsers", "TestValidate", "TestSIGKILL",
		"TestSIGKILLInTheMiddle", "TestAllEndsWithTheAgent", "TestNothingIsLeft", "TestExec", "TestExitCodes", "TestParentIsKilled",
		"TestAttackProcSys", "TestAttackNamespaces", "TestAttackKeys", "TestAttackProcesses", "TestAttackSockets", "TestAttackMountPoints", "TestAttackReadOnlyVolumes", "TestAttackForkBomb",
		"TestAttackMemory", "TestAttackEnvironment"}
	cmd := exec.Command(test, "-test.v", "-test.run", "^("+strings.Join(names, "|")+")$")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Setpgid: true}
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
	passed := strings.Count(string(output), "\n--- PASS: ")
	require.Equal(t, len(names), passed, "%s", output)
}
