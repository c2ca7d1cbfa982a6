// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/kubelet-backoff/kubelet-backoff/config"
)

// Config is the part of a kubelet's configuration that affects restarts.
type Config struct {
	config.Settings
	// MaxSource is where MaxContainerRestartPeriod is set.
	MaxSource Source
	// Gates are the feature gates for restarts, in a fixed order.
	Gates []Gate
	// FeatureGate holds the same gates for callers that need the interface.
	FeatureGate featuregate.FeatureGate
	// Warnings are in the order of the files. Warnings about files that are not
	// read come last.
	Warnings []Warning
}

// Gate is a feature gate and the origin of its value. Scripts read its JSON form in the
// output of crashloop check, so fields may be added to it, but not renamed or removed.
type Gate struct {
	Name featuregate.Feature `json:"name"`
	// Stage is ALPHA, BETA, DEPRECATED, or empty for GA, as in component-base.
	Stage   string `json:"stage"`
	Enabled bool   `json:"enabled"`
	// SetBy is the name that sets the gate: its own name, AllAlpha or AllBeta.
	// It is empty for a default.
	SetBy  featuregate.Feature `json:"setBy,omitempty"`
	Source Source              `json:"source,omitzero"`
}

// Source is the place where a value is set. The zero value means that the value
// is a default. Its JSON form is part of that of a Gate.
type Source struct {
	Kind SourceKind `json:"kind"`
	// File is set for SourceFile, SourceDropIn and SourceConfigz.
	File string `json:"file,omitempty"`
}

// SourceKind is the kind of a Source.
type SourceKind string

// The kinds, in ascending order of precedence.
const (
	SourceFile   SourceKind = "File"
	SourceDropIn SourceKind = "DropIn"
	SourceFlag   SourceKind = "Flag"
)

// SourceConfigz is the only kind for ParseConfigz. File is its name.
const SourceConfigz SourceKind = "Configz"

// Warning is about a setting that the kubelet accepts but that is probably a
// mistake.
type Warning struct {
	File string
	// Field is the path of a field. It is empty for a warning about a whole file.
	Field  string
	Detail string
}

// String formats the warning in one line.
func (w Warning) String() string {
	if w.Field == "" {
		return w.File + ": " + w.Detail
	}
	return w.File + ": " + w.Field + ": " + w.Detail
}

// Error is an error with its file.
type Error struct {
	// File is empty for an error in the feature gates of the command line.
	File string
	// Err is a *field.Error if it is about a field.
	Err error
}

// Error formats the error in one line.
func (e *Error) Error() string {
	if e.File == "" {
		return "--feature-gates: " + e.Err.Error()
	}
	return e.File + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Load reads the configuration of a kubelet that runs with --config=file, --config-dir=dir and the
// feature gates of flags. Each of the three may be empty. Load follows RunE of cmd/kubelet/app:
//
//   - The file is decoded as v1beta1. Unknown fields are dropped. Field names are
//     case-sensitive.
//   - The *.conf files of dir and its subdirectories, in lexical order, are JSON
//     merge patches of the file (RFC 7386), where null removes a value. As in
//     encoding/json, field names are not case-sensitive here. Duplicate keys are
//     errors.
//   - A feature gate of flags overrides the same gate in a file. The gates and
//     their dependencies must be valid in the file alone, in file and drop-ins
//     together, and with the flags.
//
// Unlike the kubelet, Load also warns about unknown fields in drop-ins and about likely
// misspellings. It does not know the kubelet's other feature gates and ignores names that are not
// close to a known one. It therefore does not notice that the kubelet rejects AllAlpha if an
// unrelated alpha gate depends on a gate that is off. Load does not validate the values.
//
// The error is a utilerrors.Aggregate of *Error. It reports a file that is missing, unreadable,
// empty or of another kind, a value of the wrong type, and feature gates that the kubelet would
// reject. With an error, only Warnings of the Config is set.
func Load(file, dir string, flags map[string]bool) (*Config, error) {
	var documents []*document
	var errs []error
	if file != "" {
		main := &document{source: Source{Kind: SourceFile, File: file}}
		errs = append(errs, main.read())
		documents = append(documents, main)
	}
	dropIns, warnings, err := readDropIns(dir)
	if err := utilerrors.NewAggregate(append(errs, err)); err != nil {
		return &Config{Warnings: warnings}, utilerrors.Flatten(err)
	}
	c, err := parse(append(documents, dropIns...), flags, NewFeatureGate())
	c.Warnings = append(c.Warnings, warnings...)
	return c, err
}

// ParseConfigz is Load for the configuration of a running kubelet of release 1.minor, as it
// serves it on /configz. This includes drop-ins and the flags of the kubelet. Feature gates
// that are not set have the defaults of a patched kubelet of that release, or of the
// nearest release that this project has patches for; a minor of 0 is the newest. name is
// the file in sources and errors. There are no warnings about unknown fields: these belong
// to another release.
func ParseConfigz(name string, data []byte, minor uint) (*Config, error) {
	d := &document{source: Source{Kind: SourceConfigz, File: name}}
	var response struct {
		Config map[string]any `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(data, &response); err != nil {
		return &Config{}, d.blame(err)
	}
	if response.Config == nil {
		return &Config{}, d.blame(field.Required(field.NewPath("kubeletconfig"), "this is not the response of a kubelet"))
	}
	if response.Config["kind"] == nil { // Older kubelets set neither.
		response.Config["apiVersion"], response.Config["kind"] = gvk.GroupVersion().String(), gvk.Kind
	}
	var err error
	if d.data, err = json.Marshal(response.Config); err != nil {
		return &Config{}, d.blame(err)
	}
	c, err := parse([]*document{d}, nil, newFeatureGate(min(max(cmp.Or(minor, newestMinor), oldestMinor), newestMinor)))
	c.Warnings = nil
	return c, err
}

// readDropIns reads the drop-ins below dir in merge order.
func readDropIns(dir string) (dropIns []*document, warnings []Warning, err error) {
	if dir == "" {
		return nil, nil, nil
	}
	var errs []error
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch ext := filepath.Ext(path); {
		case err != nil:
			errs = append(errs, readError(path, err))
		case entry.IsDir():
		case ext == ".conf":
			d := &document{source: Source{Kind: SourceDropIn, File: path}}
			if err := d.read(); err != nil {
				errs = append(errs, err)
			}
			dropIns = append(dropIns, d)
		case path == dir:
			// WalkDir does not follow a link, so the kubelet does not read a
			// linked directory either.
			warnings = append(warnings, Warning{File: path, Detail: "not a directory: the kubelet reads no drop-ins here and does not follow symbolic links"})
		case ext == ".yaml" || ext == ".yml" || ext == ".json":
			warnings = append(warnings, Warning{File: path, Detail: "not read: the name of a drop-in ends in .conf"})
		}
		return nil
	})
	return dropIns, warnings, utilerrors.NewAggregate(errs)
}

// parse is Load for documents already read: the file if there is one, then the
// drop-ins. gate has no values yet.
func parse(documents []*document, flags map[string]bool, gate featuregate.MutableVersionedFeatureGate) (*Config, error) {
	c := &Config{}
	var errs []error
	for _, d := range documents {
		warnings, err := d.decode()
		c.Warnings = append(c.Warnings, warnings...)
		if hasMoreDocuments(d.data) {
			c.Warnings = append(c.Warnings, Warning{File: d.source.File, Detail: "has more than one YAML document: the kubelet reads the first"})
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return c, utilerrors.NewAggregate(errs)
	}

	merged, err := merge(documents)
	if err != nil {
		return c, utilerrors.NewAggregate([]error{err})
	}
	if err := resolveGates(gate, documents, merged.FeatureGates, flags); err != nil {
		return c, err
	}
	c.setGates(gate, documents, merged.FeatureGates, flags)
	if period := merged.CrashLoopBackOff.MaxContainerRestartPeriod; period != nil {
		c.MaxContainerRestartPeriod = &period.Duration
		c.MaxSource = lastSource(documents, func(d *document) bool { return d.max != nil && *d.max == period.Duration })
	}
	return c, nil
}

// merge returns the configuration of the file and its drop-ins.
func merge(documents []*document) (*kubeletconfigv1beta1.KubeletConfiguration, error) {
	base := []byte("{}")
	merged := &kubeletconfigv1beta1.KubeletConfiguration{}
	// misfit is the error about a value of the wrong type. It names the first
	// document with that error.
	var misfit error
	for _, d := range documents {
		var err error
		if base, err = jsonpatch.MergePatch(base, d.json); err != nil {
			return nil, d.blame(err)
		}
		merged = &kubeletconfigv1beta1.KubeletConfiguration{}
		if err := json.Unmarshal(base, merged); err == nil {
			misfit = nil
		} else if misfit == nil {
			misfit = d.blame(d.explainType(err))
		}
	}
	return merged, misfit
}

// resolveGates sets the gates in the same steps as the kubelet. Each step may
// fail: the flags, then the flags with the file, then the flags with file and
// drop-ins (the last two in SetDefaults_KubeletConfiguration), and at the end
// all of them with the flags taking precedence.
func resolveGates(gate featuregate.MutableVersionedFeatureGate, documents []*document, merged, flags map[string]bool) error {
	if err := setGates(gate, flags, func(string) string { return "" }); err != nil {
		return err
	}
	fileOf := func(name string) string {
		return lastSource(documents, func(d *document) bool {
			_, ok := d.gates[name]
			return ok || name == "" && len(d.gates) > 0
		}).File
	}
	if len(documents) > 0 && !documents[0].dropIn() {
		if err := setGates(gate.DeepCopy(), documents[0].gates, func(string) string { return documents[0].source.File }); err != nil {
			return err
		}
	}
	if err := setGates(gate.DeepCopy(), merged, fileOf); err != nil {
		return err
	}
	all := maps.Clone(merged)
	if all == nil {
		all = map[string]bool{}
	}
	maps.Copy(all, flags)
	return setGates(gate, all, fileOf)
}

// setGates sets the fields of c that depend on gates.
func (c *Config) setGates(gate featuregate.MutableVersionedFeatureGate, documents []*document, merged, flags map[string]bool) {
	c.FeatureGate = gate
	c.KubeletCrashLoopBackOffMax = gate.Enabled(config.KubeletCrashLoopBackOffMax)
	c.ReduceDefaultCrashLoopBackOffDecay = gate.Enabled(config.ReduceDefaultCrashLoopBackOffDecay)
	c.KubeletDelayFirstContainerRestart = gate.Enabled(config.KubeletDelayFirstContainerRestart)

	source := func(name featuregate.Feature) Source {
		if _, ok := flags[string(name)]; ok {
			return Source{Kind: SourceFlag}
		}
		value, ok := merged[string(name)]
		if !ok {
			return Source{}
		}
		return lastSource(documents, func(d *document) bool {
			own, ok := d.gates[string(name)]
			return ok && own == value
		})
	}
	all := gate.GetAll()
	for _, name := range gateOrder {
		if _, ok := all[name]; !ok {
			continue // The release does not have it.
		}
		g := Gate{Name: name, Stage: string(all[name].PreRelease), Enabled: gate.Enabled(name)}
		group := featuregate.Feature("")
		switch all[name].PreRelease {
		case featuregate.Alpha:
			group = allAlpha
		case featuregate.Beta:
			group = allBeta
		}
		for _, setBy := range []featuregate.Feature{name, group} {
			if g.Source = source(setBy); g.Source != (Source{}) {
				g.SetBy = setBy
				break
			}
		}
		c.Gates = append(c.Gates, g)
	}
}

// lastSource returns the last document that sets a value, or the zero Source.
func lastSource(documents []*document, sets func(*document) bool) Source {
	for _, d := range slices.Backward(documents) {
		if sets(d) {
			return d.source
		}
	}
	return Source{}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
