// SPDX-License-Identifier: Apache-2.0

// Package imports has the test of what an importer of the library gets with it.
package imports

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the import path of the library.
const root = "github.com/kubelet-backoff/kubelet-backoff"

// limits are for the packages that other modules import.
var limits = []struct {
	name string
	// packages are those that the package's own files may import outside the
	// standard library. One that ends in "/..." includes all below it.
	packages []string
	// never lists modules and packages that it must not import, not even indirectly.
	never []string
	// modules is how many other modules it may import, indirectly too, without
	// those of this repository and the standard library.
	modules int
}{
	{
		name:     "backoff",
		packages: []string{"k8s.io/utils/clock"},
		modules:  1,
	},
	{
		name:     "restart",
		packages: []string{root + "/backoff", "k8s.io/api/core/v1", "k8s.io/apimachinery/...", "k8s.io/klog/v2", "k8s.io/utils/..."},
		never:    []string{"k8s.io/client-go/...", "k8s.io/component-base/..."},
		modules:  18,
	},
	{
		name:     "asked",
		packages: []string{root + "/backoff", root + "/restart", "k8s.io/api/core/v1", "k8s.io/apimachinery/..."},
		never:    []string{"k8s.io/client-go/...", "k8s.io/component-base/..."},
		modules:  18,
	},
	{
		name:     "restartpod",
		packages: []string{root + "/backoff", root + "/restart", "k8s.io/api/core/v1", "k8s.io/apimachinery/..."},
		never:    []string{"k8s.io/client-go/...", "k8s.io/component-base/..."},
		modules:  18,
	},
	{
		name:     "config",
		packages: []string{root + "/backoff"},
		modules:  1,
	},
	{
		name: "internal/chart",
	},
	{
		name:     "validation",
		packages: []string{root + "/config", "k8s.io/apimachinery/pkg/util/validation/field"},
		never:    []string{"k8s.io/api/...", "k8s.io/client-go/...", "k8s.io/component-base/..."},
		modules:  18,
	},
	{
		name: "agent",
		packages: []string{
			root + "/asked", root + "/backoff", root + "/restart", root + "/restartpod", root + "/agent/internal/expand", root + "/agent/restartrules",
			"k8s.io/api/core/v1", "k8s.io/apimachinery/...", "k8s.io/utils/...",
		},
		never:   []string{root + "/agent/podspec", "google.golang.org/grpc/...", "k8s.io/client-go/...", "k8s.io/component-base/..."},
		modules: 18,
	},
	{
		name: "agent/restartrules",
		packages: []string{
			root + "/config", root + "/restartpod", root + "/validation", "k8s.io/api/core/v1", "k8s.io/apimachinery/...",
		},
		never:   []string{"k8s.io/client-go/...", "k8s.io/component-base/..."},
		modules: 18,
	},
	{
		name: "agent/process",
		packages: []string{
			root + "/agent/...", root + "/restart", "golang.org/x/sys/unix", "k8s.io/api/core/v1", "k8s.io/apimachinery/...", "k8s.io/utils/ptr",
		},
		never:   []string{root + "/agent/cri", "google.golang.org/grpc/...", "k8s.io/client-go/...", "k8s.io/component-base/..."},
		modules: 20,
	},
}

// listed is what `go list -json` says of a package.
type listed struct {
	ImportPath string
	Standard   bool
	Imports    []string
	ImportMap  map[string]string
	Module     *struct{ Path string }
}

// list returns a package and all that come with it, by their import paths.
func list(t *testing.T, name string) map[string]*listed {
	t.Helper()
	output := goOutput(t, "", nil, "list", "-deps", "-json=ImportPath,Standard,Imports,ImportMap,Module", path.Join(root, name))
	packages := map[string]*listed{}
	for d := json.NewDecoder(strings.NewReader(output)); ; {
		p := &listed{}
		err := d.Decode(p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		require.NoError(t, err)
		packages[p.ImportPath] = p
	}
}

// matches reports whether a package matches one of the patterns.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		dir, tree := strings.CutSuffix(pattern, "/...")
		return name == dir || tree && strings.HasPrefix(name, dir+"/")
	})
}

// chain returns the chain of imports from one package to another, one a line.
func chain(packages map[string]*listed, from, to string) string {
	importer := map[string]string{from: ""}
	for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
		p := packages[todo[0]]
		if p == nil {
			continue // C and unsafe are no packages.
		}
		for _, name := range p.Imports {
			if mapped, ok := p.ImportMap[name]; ok {
				name = mapped
			}
			if _, known := importer[name]; !known {
				importer[name] = todo[0]
				todo = append(todo, name)
			}
		}
	}
	var text string
	for at := to; at != ""; at = importer[at] {
		text = "\n  " + at + text
	}
	return text
}

func TestImports(t *testing.T) {
	for _, l := range limits {
		t.Run(l.name, func(t *testing.T) {
			self := path.Join(root, l.name)
			packages := list(t, l.name)
			for _, name := range packages[self].Imports {
				if p := packages[name]; p != nil && !p.Standard && !matches(l.packages, name) {
					t.Errorf("%s may not import this:%s", l.name, chain(packages, self, name))
				}
			}
			modules := map[string]string{} // The first package of each.
			names := slices.Sorted(maps.Keys(packages))
			for _, never := range l.never {
				// One chain of many is enough.
				if i := slices.IndexFunc(names, func(name string) bool { return matches([]string{never}, name) }); i >= 0 {
					t.Errorf("%s may not bring %s with it:%s", l.name, never, chain(packages, self, names[i]))
				}
			}
			for _, name := range names {
				if m := packages[name].Module; m != nil && m.Path != root && !strings.HasPrefix(m.Path, root+"/") && modules[m.Path] == "" {
					modules[m.Path] = name
				}
			}
			t.Logf("%s brings %d modules with it: %s", l.name, len(modules), strings.Join(slices.Sorted(maps.Keys(modules)), " "))
			if len(modules) > l.modules {
				t.Errorf("%d modules come with %s, and there may be %d:", len(modules), l.name, l.modules)
				for _, m := range slices.Sorted(maps.Keys(modules)) {
					t.Errorf("%s:%s", m, chain(packages, self, modules[m]))
				}
			}
		})
	}
}

// TestChain: an error about an import that is not allowed has the chain of imports.
func TestChain(t *testing.T) {
	packages := map[string]*listed{
		"a": {Imports: []string{"b", "c"}},
		"b": {Imports: []string{"fmt"}},
		"c": {Imports: []string{"d"}, ImportMap: map[string]string{"d": "vendor/d"}},
	}
	require.Equal(t, "\n  a\n  c\n  vendor/d", chain(packages, "a", "vendor/d"))
	require.True(t, matches([]string{"a/b", "c/..."}, "c"))
	require.True(t, matches([]string{"a/b", "c/..."}, "c/d"))
	require.False(t, matches([]string{"a/b", "c/..."}, "a/b/c"))
	require.False(t, matches([]string{"a/b", "c/..."}, "cd"))
}
