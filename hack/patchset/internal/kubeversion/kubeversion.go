// SPDX-License-Identifier: Apache-2.0

// Package kubeversion reads the version numbers of kubernetes releases, tags and modules.
package kubeversion

import (
	"fmt"
	"regexp"
	"strings"
)

var Pattern = regexp.MustCompile(`^v1\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(alpha|beta|rc)\.(0|[1-9]\d*))?$`)

// Normal returns the version with its v: v1.37.1 for v1.37.1 and 1.37.1. Any other text is an error.
func Normal(text string) (string, error) {
	v := text
	if v != "" && v[0] >= '0' && v[0] <= '9' {
		v = "v" + v
	}
	if !Pattern.MatchString(v) {
		return "", fmt.Errorf("%q is not a kubernetes release: it must look like v1.37.1 or v1.38.0-beta.0", text)
	}
	return v, nil
}

var forkPattern = regexp.MustCompile(`^(v1\.\d+\.\d+)(-(?:alpha|beta|rc)\.\d+)?([-+.].*)?$`)

// OfTag returns the release in a tag, without a fork's suffix: v1.37.1 for v1.37.1-acme.3.
func OfTag(tag string) string {
	m := forkPattern.FindStringSubmatch(tag)
	if m == nil {
		return ""
	}
	return m[1] + m[2]
}

// OfStaging returns the version of a release's staging modules.
func OfStaging(version string) string { return "v0." + strings.TrimPrefix(version, "v1.") }
