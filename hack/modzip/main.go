// SPDX-License-Identifier: Apache-2.0

// modzip PROXY MODULE VERSION DIR downloads the zip file of a module version from a module proxy and unpacks it into
// DIR. It is for versions of which the proxy has the zip but not the .info and .mod files, which the go command wants
// to see first.
package main

import (
	"archive/zip"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: modzip PROXY MODULE VERSION DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "modzip:", err)
		os.Exit(1)
	}
}

func run(proxy, module, version, dir string) error {
	tmp, err := os.CreateTemp("", "modzip-*.zip")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()

	resp, err := http.Get(strings.TrimSuffix(proxy, "/") + "/" + module + "/@v/" + version + ".zip")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s@%s: %s", module, version, resp.Status)
	}
	size, err := io.Copy(tmp, resp.Body)
	if err != nil {
		return err
	}

	archive, err := zip.NewReader(tmp, size)
	if err != nil {
		return fmt.Errorf("%s@%s: %w", module, version, err)
	}
	prefix := module + "@" + version + "/"
	for _, f := range archive.File {
		name, ok := strings.CutPrefix(f.Name, prefix)
		if !ok || !filepath.IsLocal(name) {
			return fmt.Errorf("%s@%s: unexpected file %q", module, version, f.Name)
		}
		if err := extract(f, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func extract(f *zip.File, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
