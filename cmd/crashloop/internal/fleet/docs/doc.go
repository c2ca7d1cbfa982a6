// SPDX-License-Identifier: Apache-2.0

// Package docs has the tests that write the pages of docs/results about plans, and compare them
// with what the code says. Run them with -update to write the pages.
package docs
