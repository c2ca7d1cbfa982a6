// SPDX-License-Identifier: Apache-2.0

// Package kubeletconfig reads the configuration of a kubelet in the same way as the
// kubelet, and keeps what affects restarts. [Load] reads a KubeletConfiguration file, a
// drop-in directory and the feature gates of the command line. It returns the
// [config.Settings] and where each value comes from. [config.Resolve] makes a curve of
// them:
//
//	c, err := kubeletconfig.Load("/var/lib/kubelet/config.yaml", "", nil)
//	if err != nil {
//		return err
//	}
//	fmt.Println(config.Resolve(c.Settings))
package kubeletconfig
