// Package version says which build of Waybill this is.
package version

import "runtime/debug"

// String returns the module version of a released build ("v1.2.3"), the commit of one built from
// a clone ("devel+0123456789ab", with "-dirty" where the tree had changes), or "devel".
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	return fromBuild(info)
}

func fromBuild(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	commit, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if commit == "" {
		return "devel"
	}
	return "devel+" + commit[:min(len(commit), 12)] + dirty
}
