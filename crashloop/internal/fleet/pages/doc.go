// SPDX-License-Identifier: Apache-2.0

// Package pages has the tests that compare the pages of docs/results about plans with the results
// of the code. With -update they write the pages.
package pages
