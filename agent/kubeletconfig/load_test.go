// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/component-base/featuregate"

	"github.com/kubelet-backoff/kubelet-backoff/config"
)

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// files writes a tree of files below a new directory. Content without an
// apiVersion gets the header, unless it starts with "raw:".
func files(t *testing.T, tree map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range tree {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		content, raw := strings.CutPrefix(content, "raw:")
		if !raw {
			content = header + content
		}
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return root
}

func period(value string) string {
	return "crashLoopBackOff: {maxContainerRestartPeriod: " + value + "}\n"
}

// relative removes root from file names, for comparisons.
func relative(root string, s string) string { return strings.ReplaceAll(s, root+"/", "") }

// Each case with "as the kubelet" was tried on upstream's kubelet v1.37.1, which
// logs the effective configuration.
func TestLoadMaximum(t *testing.T) {
	const json = `raw:{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration",`
	tests := []struct {
		name string
		tree map[string]string
		// want is 0 if no maximum is set.
		want   time.Duration
		source Source
		warns  []string
	}{
		{"nothing is set", map[string]string{"f": ""}, 0, Source{}, nil},
		{"a null is nothing", map[string]string{"f": "crashLoopBackOff: null\n"}, 0, Source{}, nil},
		{"YAML", map[string]string{"f": period("4s")}, 4 * time.Second, Source{SourceFile, "f"}, nil},
		{"JSON", map[string]string{"f": json + `"crashLoopBackOff":{"maxContainerRestartPeriod":"1m30s"}}`}, 90 * time.Second, Source{SourceFile, "f"}, nil},
		{"the byte order mark, YAML", map[string]string{"f": "raw:\xef\xbb\xbf" + header + period("4s")}, 4 * time.Second, Source{SourceFile, "f"}, nil},
		{"the byte order mark, JSON", map[string]string{"f": strings.Replace(json, "raw:", "raw:\xef\xbb\xbf", 1) + `"crashLoopBackOff":{"maxContainerRestartPeriod":"4s"}}`}, 4 * time.Second, Source{SourceFile, "f"}, nil},
		{"a sub-second part is kept", map[string]string{"f": period("1500ms")}, 1500 * time.Millisecond, Source{SourceFile, "f"}, nil},
		{"other fields do not matter", map[string]string{"f": "maxPods: 50\nsyncFrequency: 1m\n" + period("4s")}, 4 * time.Second, Source{SourceFile, "f"}, nil},
		{"values are not validated", map[string]string{"f": period("-1h")}, -time.Hour, Source{SourceFile, "f"}, nil},

		{"a drop-in alone", map[string]string{"d/1.conf": period("4s")}, 4 * time.Second, Source{SourceDropIn, "d/1.conf"}, nil},
		{"a drop-in wins over the file", map[string]string{"f": period("4s"), "d/1.conf": period("5s")}, 5 * time.Second, Source{SourceDropIn, "d/1.conf"}, nil},
		{"a drop-in without the field leaves it", map[string]string{"f": period("4s"), "d/1.conf": "crashLoopBackOff: {}\n"}, 4 * time.Second, Source{SourceFile, "f"}, nil},
		{"the last drop-in in lexical order wins", map[string]string{"d/9.conf": period("9s"), "d/10.conf": period("10s")}, 9 * time.Second, Source{SourceDropIn, "d/9.conf"}, nil},
		{"subdirectories are in that order", map[string]string{"d/a/z.conf": period("7s"), "d/b.conf": period("8s"), "d/b/a.conf": period("9s"), "d/a.conf": period("6s")}, 8 * time.Second, Source{SourceDropIn, "d/b.conf"}, nil},
		{"the last one that sets an equal value is the source", map[string]string{"f": period("4s"), "d/1.conf": period("4s")}, 4 * time.Second, Source{SourceDropIn, "d/1.conf"}, nil},
		{"null removes the field", map[string]string{"f": period("4s"), "d/1.conf": period("null")}, 0, Source{}, nil},
		{"null removes the parent", map[string]string{"f": period("4s"), "d/1.conf": "crashLoopBackOff:\n"}, 0, Source{}, nil},
		{"set again after null", map[string]string{"f": period("4s"), "d/1.conf": period("null"), "d/2.conf": period("5s")}, 5 * time.Second, Source{SourceDropIn, "d/2.conf"}, nil},
		{"other names are not read", map[string]string{"f": period("4s"), "d/1.CONF": period("5s"), "d/1.conf~": period("5s"), "d/README": "raw:read me"}, 4 * time.Second, Source{SourceFile, "f"}, nil},
		{"nor are manifests", map[string]string{"f": period("4s"), "d/1.yaml": period("5s")}, 4 * time.Second, Source{SourceFile, "f"},
			[]string{"d/1.yaml: not read: the name of a drop-in ends in .conf"}},
		{"what does not fit is replaced, as the kubelet", map[string]string{"d/1.conf": period("4"), "d/2.conf": period("6s")}, 6 * time.Second, Source{SourceDropIn, "d/2.conf"}, nil},

		{"the file's case counts, as the kubelet", map[string]string{"f": "crashloopbackoff: {maxContainerRestartPeriod: 4s}\n"}, 0, Source{},
			[]string{"f: crashloopbackoff: unknown field: did you mean crashLoopBackOff?"}},
		{"a drop-in's does not, as the kubelet", map[string]string{"d/1.conf": "crashloopbackoff: {maxcontainerrestartperiod: 4s}\n"}, 4 * time.Second, Source{SourceDropIn, "d/1.conf"},
			[]string{
				"d/1.conf: crashloopbackoff: not the field's case, crashLoopBackOff: it counts in a drop-in, and would not in the file of --config",
				"d/1.conf: crashloopbackoff.maxcontainerrestartperiod: not the field's case, crashLoopBackOff.maxContainerRestartPeriod: it counts in a drop-in, and would not in the file of --config",
			}},
		{"and wins over the right case, even earlier, as the kubelet", map[string]string{"d/0.conf": "crashloopbackoff: {maxContainerRestartPeriod: 4s}\n", "d/1.conf": period("3s")}, 4 * time.Second, Source{SourceDropIn, "d/0.conf"},
			[]string{"d/0.conf: crashloopbackoff: not the field's case, crashLoopBackOff: it counts in a drop-in, and would not in the file of --config"}},
		{"a null in the wrong case removes nothing, as the kubelet", map[string]string{"f": period("4s"), "d/1.conf": "crashloopbackoff: null\n"}, 4 * time.Second, Source{SourceFile, "f"},
			[]string{"d/1.conf: crashloopbackoff: not the field's case, crashLoopBackOff: it counts in a drop-in, and would not in the file of --config"}},
		{"the drafts' example", map[string]string{"f": "crashloopbackoff:\n  maxSeconds: 4\n"}, 0, Source{},
			[]string{
				"f: crashloopbackoff: unknown field: did you mean crashLoopBackOff?",
				"f: crashloopbackoff.maxSeconds: unknown field: did you mean crashLoopBackOff.maxContainerRestartPeriod?",
			}},
		{"near misses below the right name", map[string]string{"f": "crashLoopBackOff: {maxSeconds: 4, maxcontainerRestartPeriod: 4s, maxContainerRestartPeriodSeconds: 4, other: 1}\n"}, 0, Source{},
			[]string{
				"f: crashLoopBackOff.maxContainerRestartPeriodSeconds: unknown field: did you mean crashLoopBackOff.maxContainerRestartPeriod?",
				"f: crashLoopBackOff.maxSeconds: unknown field: did you mean crashLoopBackOff.maxContainerRestartPeriod?",
				"f: crashLoopBackOff.maxcontainerRestartPeriod: unknown field: did you mean crashLoopBackOff.maxContainerRestartPeriod?",
				"f: crashLoopBackOff.other: unknown field",
			}},
		{"wrong nesting and wrong cases at the top", map[string]string{"f": "maxContainerRestartPeriod: 4s\ncrashLoopBackoff: {}\nCrashLoopBackOff: {}\nFeatureGates: {}\n"}, 0, Source{},
			[]string{
				"f: CrashLoopBackOff: unknown field: did you mean crashLoopBackOff?",
				"f: FeatureGates: unknown field: did you mean featureGates?",
				"f: crashLoopBackoff: unknown field: did you mean crashLoopBackOff?",
				"f: maxContainerRestartPeriod: unknown field: did you mean crashLoopBackOff.maxContainerRestartPeriod?",
			}},
		{"unknown fields elsewhere, file and drop-in", map[string]string{"f": "noSuchField: 1\nmemorySwap: {swapBehaviour: x}\n", "d/1.conf": "logging: {color: 1}\n"}, 0, Source{},
			[]string{"f: memorySwap.swapBehaviour: unknown field", "f: noSuchField: unknown field", "d/1.conf: logging.color: unknown field"}},
		{"duplicate keys in YAML, as the kubelet", map[string]string{"f": period("4s") + period("5s")}, 5 * time.Second, Source{SourceFile, "f"},
			[]string{`f: yaml: unmarshal errors: line 4: key "crashLoopBackOff" already set in map: the last one counts`}},
		{"duplicate keys in JSON, as the kubelet", map[string]string{"f": json + `"crashLoopBackOff":{"maxContainerRestartPeriod":"4s"},"crashLoopBackOff":{"maxContainerRestartPeriod":"5s"}}`}, 5 * time.Second, Source{SourceFile, "f"},
			[]string{"f: crashLoopBackOff: duplicate field: the last one counts"}},
		{"the first document, as the kubelet", map[string]string{"f": period("4s") + "---\n" + header + period("5s")}, 4 * time.Second, Source{SourceFile, "f"},
			[]string{"f: has more than one YAML document: the kubelet reads the first"}},
		{"comments and a separator make no second document", map[string]string{"f": "raw:# of the node\n---\n" + header + period("4s") + "---\n# end\n"}, 4 * time.Second, Source{SourceFile, "f"}, nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			root := files(t, tc.tree)
			c, err := Load(existing(root, "f"), existing(root, "d"), nil)
			require.NoError(t, err)
			var got time.Duration
			if c.MaxContainerRestartPeriod != nil {
				got = *c.MaxContainerRestartPeriod
				require.NotZero(t, got)
			}
			require.Equal(t, tc.want, got)
			c.MaxSource.File = relative(root, c.MaxSource.File)
			require.Equal(t, tc.source, c.MaxSource)
			var warns []string
			for _, w := range c.Warnings {
				warns = append(warns, relative(root, w.String()))
			}
			require.Equal(t, tc.warns, warns)
		})
	}
}

// existing returns the path of a file below root, or "" if it does not exist.
func existing(root, name string) string {
	path := filepath.Join(root, name)
	if _, err := os.Lstat(path); err != nil {
		return ""
	}
	return path
}

func TestLoadErrors(t *testing.T) {
	tests := []struct {
		name string
		tree map[string]string
		want []string
	}{
		{"empty file", map[string]string{"f": "raw:"}, []string{"f: empty: apiVersion and kind are required"}},
		{"empty drop-in", map[string]string{"d/1.conf": "raw:"}, []string{"d/1.conf: empty: apiVersion and kind are required"}},
		{"no kind", map[string]string{"f": "raw:" + period("4s")}, []string{`f: kind: Unsupported value: "": supported values: "KubeletConfiguration"`}},
		{"no kind in a drop-in", map[string]string{"d/1.conf": "raw:" + period("4s")}, []string{`d/1.conf: kind: Unsupported value: "": supported values: "KubeletConfiguration"`}},
		{"another kind", map[string]string{"f": "raw:apiVersion: v1\nkind: Pod\n"}, []string{`f: kind: Unsupported value: "Pod": supported values: "KubeletConfiguration"`}},
		{"another kind of the group", map[string]string{"f": "raw:apiVersion: kubelet.config.k8s.io/v1beta1\nkind: CredentialProviderConfig\n"}, []string{`f: kind: Unsupported value: "CredentialProviderConfig": supported values: "KubeletConfiguration"`}},
		{"no apiVersion", map[string]string{"f": "raw:kind: KubeletConfiguration\n"}, []string{`f: apiVersion: Unsupported value: "": supported values: "kubelet.config.k8s.io/v1beta1"`}},
		{"no apiVersion in a drop-in", map[string]string{"d/1.conf": "raw:kind: KubeletConfiguration\n"}, []string{`d/1.conf: apiVersion: Unsupported value: "": supported values: "kubelet.config.k8s.io/v1beta1"`}},
		{"another version", map[string]string{"f": "raw:apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration\n"}, []string{`f: apiVersion: Unsupported value: "kubelet.config.k8s.io/v1": supported values: "kubelet.config.k8s.io/v1beta1"`}},
		{"another version in a drop-in", map[string]string{"d/1.conf": "raw:apiVersion: kubelet.config.k8s.io/v1alpha1\nkind: KubeletConfiguration\n"}, []string{`d/1.conf: apiVersion: Unsupported value: "kubelet.config.k8s.io/v1alpha1": supported values: "kubelet.config.k8s.io/v1beta1"`}},
		{"a bare integer", map[string]string{"f": period("4")}, []string{`f: crashLoopBackOff.maxContainerRestartPeriod: Invalid value: 4: must be a string with a number and its unit: did you mean "4s"?`}},
		{"a bare integer in a drop-in", map[string]string{"f": "", "d/1.conf": "crashloopbackoff: {maxContainerRestartPeriod: 4}\n", "d/2.conf": "maxPods: 50\n"}, []string{`d/1.conf: crashLoopBackOff.maxContainerRestartPeriod: Invalid value: 4: must be a string with a number and its unit: did you mean "4s"?`}},
		{"no unit", map[string]string{"f": period(`"4"`)}, []string{`f: crashLoopBackOff.maxContainerRestartPeriod: Invalid value: "4": must be a string with a number and its unit, such as "4s": time: missing unit in duration "4"`}},
		{"a boolean", map[string]string{"f": period("true")}, []string{`f: crashLoopBackOff.maxContainerRestartPeriod: Invalid value: true: must be a string with a number and its unit, such as "4s"`}},
		{"a scalar parent", map[string]string{"f": "crashLoopBackOff: 4s\n"}, []string{`f: crashLoopBackOff: Invalid value: "4s": must be an object with the field maxContainerRestartPeriod`}},
		{"a type error elsewhere", map[string]string{"f": "maxPods: many\n"}, []string{"f: json: cannot unmarshal string into Go struct field KubeletConfiguration.maxPods of type int32"}},
		{"a type error in a drop-in", map[string]string{"d/1.conf": "featureGates: {KubeletCrashLoopBackOffMax: \"off\"}\n"}, []string{"d/1.conf: json: cannot unmarshal string into Go struct field KubeletConfiguration.featureGates of type bool"}},
		{"no YAML", map[string]string{"f": "raw:a: b: c\n"}, []string{"f: yaml: mapping values are not allowed in this context"}},
		{"no JSON, which begins like it, as the kubelet", map[string]string{"f": "raw:{kind: KubeletConfiguration}"}, []string{"f: couldn't get version/kind; json parse error: invalid character 'k' looking for beginning of object key string"}},
		{"duplicate keys in a drop-in, as the kubelet", map[string]string{"d/1.conf": period("4s") + period("5s")}, []string{`d/1.conf: strict decoding error: yaml: unmarshal errors: line 4: key "crashLoopBackOff" already set in map`}},
		{"all files that are wrong", map[string]string{"f": "raw:", "d/1.conf": "", "d/2.conf": "raw:"}, []string{"f: empty: apiVersion and kind are required", "d/2.conf: empty: apiVersion and kind are required"}},

		{"a former gate", map[string]string{"f": "featureGates: {EnableKubeletCrashLoopBackoffMax: true}\n"}, []string{`f: featureGates: Invalid value: "EnableKubeletCrashLoopBackoffMax": unrecognized feature gate: did you mean KubeletCrashLoopBackOffMax?`}},
		{"a gate in the wrong case, in a drop-in", map[string]string{"d/1.conf": "featureGates: {ReduceDefaultCrashLoopBackoffDecay: true}\n", "d/2.conf": "featureGates: {AllBeta: true}\n"}, []string{`d/1.conf: featureGates: Invalid value: "ReduceDefaultCrashLoopBackoffDecay": unrecognized feature gate: did you mean ReduceDefaultCrashLoopBackOffDecay?`}},
		{"a gate that another depends on, as the kubelet", map[string]string{"f": "featureGates: {ContainerRestartRules: false}\n"}, []string{"f: featureGates: Forbidden: RestartAllContainersOnContainerExits is enabled, but depends on features that are disabled: [ContainerRestartRules]"}},
		{"RestartPod without rules", map[string]string{"f": "featureGates: {ContainerRestartRules: false, RestartAllContainersOnContainerExits: false, RestartPodOnContainerExits: true}\n"}, []string{"f: featureGates: Forbidden: RestartPodOnContainerExits is enabled, but depends on features that are disabled: [ContainerRestartRules]"}},
		{"too late for a drop-in, as the kubelet", map[string]string{"f": "featureGates: {ContainerRestartRules: false}\n", "d/1.conf": "featureGates: {RestartAllContainersOnContainerExits: false}\n"}, []string{"f: featureGates: Forbidden: RestartAllContainersOnContainerExits is enabled, but depends on features that are disabled: [ContainerRestartRules]"}},
		{"a locked gate, as the kubelet", map[string]string{"f": "featureGates: {NodeDeclaredFeatures: false}\n"}, []string{"f: featureGates: Forbidden: cannot set feature gate NodeDeclaredFeatures to false, feature is locked to true"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			root := files(t, tc.tree)
			c, err := Load(existing(root, "f"), existing(root, "d"), nil)
			require.Error(t, err)
			require.Nil(t, c.FeatureGate)
			var agg utilerrors.Aggregate
			require.ErrorAs(t, err, &agg)
			require.Len(t, agg.Errors(), len(tc.want))
			for i, want := range tc.want {
				var fileErr *Error
				require.ErrorAs(t, agg.Errors()[i], &fileErr)
				require.Equal(t, want, relative(root, fileErr.Error()))
			}
		})
	}
}

func TestLoadFileSystem(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")

	t.Run("missing file and directory", func(t *testing.T) {
		_, err := Load(missing, missing+".d", nil)
		require.ErrorIs(t, err, os.ErrNotExist)
		require.EqualError(t, err, "["+missing+": no such file or directory, "+missing+".d: no such file or directory]")
	})
	t.Run("a directory for a file", func(t *testing.T) {
		_, err := Load(t.TempDir(), "", nil)
		require.ErrorContains(t, err, "is a directory")
	})
	t.Run("unreadable", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Skip("root reads every file")
		}
		path := filepath.Join(files(t, map[string]string{"f": ""}), "f")
		require.NoError(t, os.Chmod(path, 0))
		_, err := Load(path, "", nil)
		require.ErrorIs(t, err, os.ErrPermission)
	})
	t.Run("an empty directory", func(t *testing.T) {
		c, err := Load("", t.TempDir(), nil)
		require.NoError(t, err)
		require.Empty(t, c.Warnings)
	})
	t.Run("links to files are followed, links to directories are not", func(t *testing.T) {
		root := files(t, map[string]string{"elsewhere": period("7s"), "other/9.conf": period("9s")})
		require.NoError(t, os.Mkdir(filepath.Join(root, "d"), 0o755))
		require.NoError(t, os.Symlink("../elsewhere", filepath.Join(root, "d/1.conf")))
		require.NoError(t, os.Symlink("../other", filepath.Join(root, "d/2")))
		c, err := Load("", filepath.Join(root, "d"), nil)
		require.NoError(t, err)
		require.Equal(t, 7*time.Second, *c.MaxContainerRestartPeriod)
		require.Empty(t, c.Warnings)
	})
	t.Run("a link for the directory, as the kubelet", func(t *testing.T) {
		root := files(t, map[string]string{"d/1.conf": period("7s")})
		link := filepath.Join(root, "link")
		require.NoError(t, os.Symlink("d", link))
		c, err := Load("", link, nil)
		require.NoError(t, err)
		require.Nil(t, c.MaxContainerRestartPeriod)
		require.Equal(t, []Warning{{File: link, Detail: "not a directory: the kubelet reads no drop-ins here and does not follow symbolic links"}}, c.Warnings)
		c, err = Load("", link+"/", nil)
		require.NoError(t, err)
		require.Equal(t, 7*time.Second, *c.MaxContainerRestartPeriod)
	})
	t.Run("huge", func(t *testing.T) {
		lines := 100_000
		if testing.Short() {
			lines = 20_000
		}
		content := append([]byte(header+period("4s")), bytes.Repeat([]byte("# a comment of forty characters .......\n"), lines)...)
		path := filepath.Join(t.TempDir(), "f")
		require.NoError(t, os.WriteFile(path, content, 0o644))
		c, err := Load(path, "", nil)
		require.NoError(t, err)
		require.Equal(t, 4*time.Second, *c.MaxContainerRestartPeriod)
	})
	t.Run("files stay as they were", func(t *testing.T) {
		root := files(t, map[string]string{"f": "raw:a: b: c\n"})
		_, err := Load(filepath.Join(root, "f"), "", nil)
		require.Error(t, err)
		content, err := os.ReadFile(filepath.Join(root, "f"))
		require.NoError(t, err)
		require.Equal(t, "a: b: c\n", string(content))
	})
}

func TestLoadGates(t *testing.T) {
	const (
		max     featuregate.Feature = config.KubeletCrashLoopBackOffMax
		reduced featuregate.Feature = config.ReduceDefaultCrashLoopBackOffDecay
	)
	tests := []struct {
		name   string
		tree   map[string]string
		flags  map[string]bool
		gate   featuregate.Feature
		want   bool
		setBy  featuregate.Feature
		source Source
	}{
		{"beta default", nil, nil, max, true, "", Source{}},
		{"alpha default", nil, nil, reduced, false, "", Source{}},
		{"flag", nil, map[string]bool{"KubeletCrashLoopBackOffMax": false}, max, false, max, Source{Kind: SourceFlag}},
		{"file", map[string]string{"f": "featureGates: {KubeletCrashLoopBackOffMax: false}\n"}, nil, max, false, max, Source{SourceFile, "f"}},
		{"a null in the file is false, as the kubelet", map[string]string{"f": "featureGates: {KubeletCrashLoopBackOffMax: }\n"}, nil, max, false, max, Source{SourceFile, "f"}},
		{"drop-in", map[string]string{"d/1.conf": "featureGates: {KubeletCrashLoopBackOffMax: false}\n"}, nil, max, false, max, Source{SourceDropIn, "d/1.conf"}},
		{"drop-in over file", map[string]string{"f": "featureGates: {KubeletCrashLoopBackOffMax: false}\n", "d/1.conf": "featureGates: {KubeletCrashLoopBackOffMax: true}\n"}, nil, max, true, max, Source{SourceDropIn, "d/1.conf"}},
		{"a drop-in leaves other gates", map[string]string{"f": "featureGates: {KubeletCrashLoopBackOffMax: false}\n", "d/1.conf": "featureGates: {ReduceDefaultCrashLoopBackOffDecay: true}\n"}, nil, max, false, max, Source{SourceFile, "f"}},
		{"null in a drop-in removes", map[string]string{"f": "featureGates: {KubeletCrashLoopBackOffMax: false}\n", "d/1.conf": "featureGates: {KubeletCrashLoopBackOffMax: null}\n"}, nil, max, true, "", Source{}},
		{"the flag wins", map[string]string{"f": "featureGates: {KubeletCrashLoopBackOffMax: false}\n"}, map[string]bool{"KubeletCrashLoopBackOffMax": true}, max, true, max, Source{Kind: SourceFlag}},
		{"gate by gate", map[string]string{"f": "featureGates: {KubeletCrashLoopBackOffMax: false}\n"}, map[string]bool{"ReduceDefaultCrashLoopBackOffDecay": true}, max, false, max, Source{SourceFile, "f"}},
		{"AllAlpha", map[string]string{"f": "featureGates: {AllAlpha: true}\n"}, nil, reduced, true, "AllAlpha", Source{SourceFile, "f"}},
		{"AllAlpha leaves beta", map[string]string{"f": "featureGates: {AllAlpha: false}\n"}, nil, max, true, "", Source{}},
		{"AllBeta", nil, map[string]bool{"AllBeta": false}, max, false, "AllBeta", Source{Kind: SourceFlag}},
		{"a name wins over AllAlpha, wherever it is", map[string]string{"f": "featureGates: {ReduceDefaultCrashLoopBackOffDecay: false}\n"}, map[string]bool{"AllAlpha": true}, reduced, false, reduced, Source{SourceFile, "f"}},
		{"other gates pass", map[string]string{"f": "featureGates: {MemoryQoS: true, NoSuchGate: true}\n"}, map[string]bool{"Another": false}, max, true, "", Source{}},
		{"a dependent gate that is off by flag, as the kubelet", map[string]string{"f": "featureGates: {ContainerRestartRules: false}\n"}, map[string]bool{"RestartAllContainersOnContainerExits": false}, config.ContainerRestartRules, false, config.ContainerRestartRules, Source{SourceFile, "f"}},
		{"a locked gate at its value", nil, map[string]bool{"NodeDeclaredFeatures": true}, max, true, "", Source{}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			root := files(t, tc.tree)
			c, err := Load(existing(root, "f"), existing(root, "d"), tc.flags)
			require.NoError(t, err)
			require.Equal(t, tc.want, c.FeatureGate.Enabled(tc.gate))
			for _, g := range c.Gates {
				require.Equal(t, c.FeatureGate.Enabled(g.Name), g.Enabled, g.Name)
				if g.Name == tc.gate {
					g.Source.File = relative(root, g.Source.File)
					require.Equal(t, tc.setBy, g.SetBy)
					require.Equal(t, tc.source, g.Source)
				}
			}
			require.Equal(t, c.FeatureGate.Enabled(max), c.KubeletCrashLoopBackOffMax)
			require.Equal(t, c.FeatureGate.Enabled(reduced), c.ReduceDefaultCrashLoopBackOffDecay)
			require.Equal(t, c.FeatureGate.Enabled(config.KubeletDelayFirstContainerRestart), c.KubeletDelayFirstContainerRestart)
		})
	}
}

func TestLoadGateErrorsOfFlags(t *testing.T) {
	_, err := Load("", "", map[string]bool{"kubeletcrashloopbackoffmax": true, "AllAlpha": true})
	require.EqualError(t, err, `--feature-gates: featureGates: Invalid value: "kubeletcrashloopbackoffmax": unrecognized feature gate: did you mean KubeletCrashLoopBackOffMax?`)
}

func TestParseConfigz(t *testing.T) {
	const name = "node/n configz"
	tests := []struct {
		name, data string
		minor      uint
		// maximum is 0 if the gate is off or no maximum is set.
		maximum time.Duration
		gates   int
		err     string
	}{
		{"newest", `{"kubeletconfig":{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1","crashLoopBackOff":{"maxContainerRestartPeriod":"4s"}}}`, 37, 4 * time.Second, len(gateOrder), ""},
		{"without a kind", `{"kubeletconfig":{"crashLoopBackOff":{"maxContainerRestartPeriod":"4s"}}}`, 37, 4 * time.Second, len(gateOrder), ""},
		{"an unknown release", `{"kubeletconfig":{}}`, 0, 0, len(gateOrder), ""},
		{"a later release with its own fields", `{"kubeletconfig":{"later":{"a":1},"crashLoopBackOff":{}}}`, 50, 0, len(gateOrder), ""},
		{"the gate is alpha before v1.35", `{"kubeletconfig":{"crashLoopBackOff":{"maxContainerRestartPeriod":"4s"}}}`, 34, 0, len(gateOrder) - 2, ""},
		{"and may be set", `{"kubeletconfig":{"featureGates":{"KubeletCrashLoopBackOffMax":true},"crashLoopBackOff":{"maxContainerRestartPeriod":"4s"}}}`, 31, 4 * time.Second, 10, ""},
		{"a gate that is locked later", `{"kubeletconfig":{"featureGates":{"NodeDeclaredFeatures":false,"RestartAllContainersOnContainerExits":false}}}`, 36, 0, len(gateOrder), ""},
		{"no JSON", `404 page not found`, 37, 0, 0, name + ": invalid character"},
		{"other JSON", `{"kind":"Status"}`, 37, 0, 0, name + ": kubeletconfig: Required value: this is not the response of a kubelet"},
		{"another version", `{"kubeletconfig":{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v2"}}`, 37, 0, 0, name + `: apiVersion: Unsupported value: "kubelet.config.k8s.io/v2"`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			c, err := ParseConfigz(name, []byte(tc.data), tc.minor)
			require.Empty(t, c.Warnings)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Len(t, c.Gates, tc.gates)
			if tc.maximum > 0 {
				require.Equal(t, Source{SourceConfigz, name}, c.MaxSource)
				require.Equal(t, tc.maximum, config.Resolve(c.Settings).Max)
			} else {
				require.Equal(t, 5*time.Minute, config.Resolve(c.Settings).Max)
			}
		})
	}
}

// The gates of pkg/features in Kubernetes v1.37, and ours.
func TestNewFeatureGate(t *testing.T) {
	all := NewFeatureGate().GetAll()
	got := map[string]string{}
	for name, spec := range all {
		got[string(name)] = string(spec.PreRelease)
		if spec.Default {
			got[string(name)] += " on"
		}
	}
	require.Equal(t, map[string]string{
		"AllAlpha": "ALPHA", "AllBeta": "BETA",
		"KubeletCrashLoopBackOffMax":           "BETA on",
		"ReduceDefaultCrashLoopBackOffDecay":   "ALPHA",
		"KubeletDelayFirstContainerRestart":    "ALPHA",
		"ContainerRestartRules":                "BETA on",
		"RestartAllContainersOnContainerExits": "BETA on",
		"RestartPodOnContainerExits":           "ALPHA",
		"KubeletStrictCrashLoopBackOff":        "BETA on",
		"KubeletRelistOnExit":                  "BETA on",
		"KubeletCachedStatusInBackOff":         "BETA on",
		"KubeletPatchPodStatusWithoutGet":      "BETA on",
		"KubeletFirstStartsFirst":              "BETA on",
		"KubeletRestartAtAnnotation":           "ALPHA",
		"KubeletMaxRestartsAnnotation":         "ALPHA",
		"KubeletRestartBackOffAnnotation":      "ALPHA",
		"KubeletRestartAllContainersBackOff":   "BETA on",
		"NodeDeclaredFeatures":                 " on",
	}, got)
	for former, gate := range formerGates {
		require.NotContains(t, got, former)
		require.Contains(t, got, string(gate))
	}
	one := NewFeatureGate()
	require.NoError(t, one.SetFromMap(map[string]bool{"AllAlpha": true}))
	require.False(t, NewFeatureGate().Enabled(config.ReduceDefaultCrashLoopBackOffDecay), "gates share nothing")
}

func TestNearGate(t *testing.T) {
	tests := []struct {
		name string
		want featuregate.Feature
	}{
		{"KubeletCrashLoopBackOfMax", config.KubeletCrashLoopBackOffMax},
		{"RestartPodOnContainerExitz", config.RestartPodOnContainerExits},
		{"RestartPodOnContainerExit", config.RestartPodOnContainerExits},
		{"ReduceDefaultCrashLoopBackoffDelay", config.ReduceDefaultCrashLoopBackOffDecay},
		{"containerRestartRulesXX", config.ContainerRestartRules},
		{"ContainerRestartRulesXXX", ""},
		{"AllBetas", "AllBeta"},
		{"AllBpha", "AllAlpha"},
		{"EnableRapidCrashLoopBackOffDecay", config.KubeletCrashLoopBackOffMax},
		{"", ""},
		// The gates of 1.37 with the names closest to ours.
		{"ContainerStopSignals", ""},
		{"KubeletFineGrainedAuthz", ""},
		{"KubeletTracing", ""},
		{"NodeLogQuery", ""},
		{"PodAndContainerStatsFromCRI", ""},
		{"PodLevelResources", ""},
		{"PodsAPI", ""},
		{"WinDSR", ""},
		{"PodReadyToStartContainersCondition", ""},
		{"SchedulerPopFromBackoffQ", ""},
	}
	known := NewFeatureGate().GetAll()
	for _, tc := range tests {
		got, ok := nearGate(tc.name, known)
		require.Equal(t, tc.want, got, tc.name)
		require.Equal(t, tc.want != "", ok, tc.name)
	}
}

// No input panics, and every accepted input has a curve within the bounds.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", header, header + period("4s"), header + period("4"), header + "crashloopbackoff: {maxSeconds: 4}\n",
		header + "featureGates: {AllAlpha: true, kubeletcrashloopbackoffmax: null}\n", "\xef\xbb\xbf" + header,
		header + "---\n" + header, "{", "[]", "null", "a: &a [*a]\n", "kind: List\nitems: [1]\n",
		`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","crashLoopBackOff":{"maxContainerRestartPeriod":"4s"}}`,
	} {
		f.Add([]byte(seed), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, file, dropIn []byte) {
		documents := []*document{
			{source: Source{SourceFile, "f"}, data: file},
			{source: Source{SourceDropIn, "d"}, data: dropIn},
		}
		c, err := parse(documents, nil, NewFeatureGate())
		if err != nil {
			require.Nil(t, c.FeatureGate)
			return
		}
		curve := config.Resolve(c.Settings)
		require.LessOrEqual(t, curve.Initial, curve.Max)
		require.GreaterOrEqual(t, curve.Initial, config.LeastMaxContainerRestartPeriod)
		require.LessOrEqual(t, curve.Max, config.GreatestMaxContainerRestartPeriod)
		require.Equal(t, c.MaxContainerRestartPeriod == nil, c.MaxSource == Source{}, "what is set is set somewhere")
	})
}
