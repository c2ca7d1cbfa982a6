// SPDX-License-Identifier: Apache-2.0

// Package docs has the tests that compare the pages of docs/results about plans with the results
// of the code. With -update they write the pages.
package docs
