// SPDX-License-Identifier: Apache-2.0

// Package usage has the flags, and the errors of flags, that the commands share.
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

// Output adds the flag for the output format. The default is a table. An unknown format is
// an error before the command runs.
func Output(cmd *cobra.Command, to *string, formats []string) {
	cmd.Flags().StringVarP(to, "output", "o", "table", "the output format: "+strings.Join(formats, ", "))
	Name(cmd, map[string]string{"output": "FORMAT"})
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(formats, *to) {
			return fmt.Errorf("no output format %q: use %s", *to, strings.Join(formats, ", "))
		}
		return nil
	}
}

// Name sets the names of flag values in help texts.
func Name(cmd *cobra.Command, names map[string]string) {
	for name, placeholder := range names {
		flag := cmd.Flags().Lookup(name)
		flag.Value = named{flag.Value, placeholder}
		if flag.DefValue == "[]" || flag.DefValue == "0s" {
			flag.DefValue = "" // Otherwise help would show the zero value of a type that pflag does not know.
		}
	}
}

// named is the value of a flag with its name in help texts. pflag can also read the name
// from backquotes in the usage, but completions would show the backquotes.
type named struct {
	pflag.Value
	name string
}

func (v named) Type() string { return v.name }

// Var adds a flag whose value parse parses. An error of parse must name the valid values.
// placeholder is the name of the value in help texts, and text is the default.
func Var[T any](flags *pflag.FlagSet, to *T, name, placeholder, text, help string, parse func(string) (T, error)) {
	flags.Func(name, help, func(text string) (err error) {
		*to, err = parse(text)
		return err
	})
	flag := flags.Lookup(name)
	flag.Value, flag.DefValue = named{flag.Value, placeholder}, text
}

// Error replaces the text of strconv in an error about a flag with the valid values. It is
// for cobra's SetFlagErrorFunc.
func Error(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	text, found := err.Error(), false
	valid := "true or false"
	if number := (*strconv.NumError)(nil); errors.As(err, &number) {
		text, found = strings.CutSuffix(text, number.Error())
		kind := map[string]string{"ParseInt": "a whole number", "ParseUint": "a whole number that is not negative", "ParseFloat": "a number"}[number.Func]
		if kind != "" {
			valid = kind + " such as " + invalid.GetFlag().DefValue
		}
		if errors.Is(err, strconv.ErrRange) {
			valid += ", and smaller"
		}
	} else if text, _, found = strings.Cut(text, ", err: strconv.ParseBool"); found {
		text += ": " // The error is about a feature gate.
	}
	if !found {
		return err
	}
	return errors.New(text + "must be " + valid)
}
