package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is what the build says of itself.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the source, "" if the build does not say
	Go       string `json:"goVersion"`
}

// String returns the version for people.
func (v version) String() string {
	s := v.Version
	if v.Revision != "" {
		s += " (" + v.Revision + ")"
	}
	return s + " " + v.Go
}

func versionInfo() version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version{Version: "unknown"}
	}
	v := version{Version: info.Main.Version, Go: info.GoVersion}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this build",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := versionInfo()
			if a.json {
				return jsonLines(a.stdout).Encode(v)
			}
			_, err := fmt.Fprintf(a.stdout, "segtier %s\n", v)
			return err
		},
	}
}
