package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/internal/config"
)

// serverFlags adds a flag for every setting, and the file of settings.
func serverFlags(flags *pflag.FlagSet) {
	flags.String("config", "", "YAML file of settings (WAYBILL_CONFIG)")
	for _, s := range config.Settings() {
		usage := s.Usage
		if s.Flag() != strings.ReplaceAll(s.Key, "_", "-") {
			usage = "file that holds " + usage
		}
		if s.Default != "" {
			usage += " (default " + s.Default + ")"
		}
		flags.String(s.Flag(), "", usage)
	}
}

// databaseFlags adds the flags of commands that open the database themselves.
func databaseFlags(flags *pflag.FlagSet, more ...string) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	serverFlags(all)
	for _, name := range append([]string{"config", "database-url", "migrate-database-url-file"}, more...) {
		flags.AddFlag(all.Lookup(name))
	}
}

// config reads the configuration from the flags that were given, the environment and the file.
func (sh *shell) config(flags *pflag.FlagSet) (config.Config, error) {
	return config.Load(sh.sources(flags))
}

func (sh *shell) sources(flags *pflag.FlagSet) config.Sources {
	src := config.Sources{File: sh.env("WAYBILL_CONFIG"), Environ: sh.environ, Flags: map[string]string{}}
	flags.Visit(func(f *pflag.Flag) {
		if f.Name == "config" {
			src.File = f.Value.String()
			return
		}
		src.Flags[f.Name] = f.Value.String()
	})
	return src
}
