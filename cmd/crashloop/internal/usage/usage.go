// SPDX-License-Identifier: Apache-2.0

// Package usage has what commands have in common in how they are used: their flags, and errors of
// flags.
package usage

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Output adds the flag for the format of the output, which is a table by default. Another
// format than these is an error before the command runs.
func Output(cmd *cobra.Command, to *string, formats []string) {
	cmd.Flags().StringVarP(to, "output", "o", "table", "the output format: "+strings.Join(formats, ", "))
	Name(cmd, map[string]string{"output": "FORMAT"})
	Must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(formats, *to) {
			return fmt.Errorf("no output format %q: use %s", *to, strings.Join(formats, ", "))
		}
		return nil
	}
}

// Name sets the names of flag values in help.
func Name(cmd *cobra.Command, names map[string]string) {
	for name, placeholder := range names {
		flag := cmd.Flags().Lookup(name)
		flag.Value = named{flag.Value, placeholder}
		if flag.DefValue == "[]" || flag.DefValue == "0s" {
			flag.DefValue = "" // Help leaves it out, as it does for the types that pflag knows.
		}
	}
}

// named is the value of a flag with its name in help. pflag also takes that name
// from backquotes in the usage, but completions would show the backquotes.
type named struct {
	pflag.Value
	name string
}

func (v named) Type() string { return v.name }

// Var adds a flag that parse parses. Its errors say what would be right. placeholder is the name of
// the value in help, and text the default.
func Var[T any](flags *pflag.FlagSet, to *T, name, placeholder, text, help string, parse func(string) (T, error)) {
	flags.Var(&value[T]{to, text, placeholder, parse}, name, help)
}

type value[T any] struct {
	to    *T
	text  string
	name  string
	parse func(string) (T, error)
}

func (v *value[T]) String() string { return v.text }

func (v *value[T]) Type() string { return v.name }

func (v *value[T]) Set(text string) (err error) {
	if *v.to, err = v.parse(text); err == nil {
		v.text = text
	}
	return err
}

// Must panics on an error that only a misnamed flag in this program can cause.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// Error adds to an error about a flag what would be right, where pflag only has the text of
// strconv. It is for cobra's SetFlagErrorFunc.
func Error(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	text, found := err.Error(), false
	right := "true or false"
	if number := (*strconv.NumError)(nil); errors.As(err, &number) {
		text, found = strings.CutSuffix(text, number.Error())
		kind := map[string]string{"ParseInt": "a whole number", "ParseUint": "a whole number that is not negative", "ParseFloat": "a number"}[number.Func]
		if kind != "" {
			right = kind + " such as " + invalid.GetFlag().DefValue
		}
		if errors.Is(err, strconv.ErrRange) {
			right += ", and not as large"
		}
	} else if text, _, found = strings.Cut(text, ", err: strconv.ParseBool"); found {
		text += ": " // a feature gate's
	}
	if !found {
		return err
	}
	return errors.New(text + "must be " + right)
}
