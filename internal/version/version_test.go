package version

import (
	"runtime/debug"
	"testing"
)

func TestString_namesTheBuild(t *testing.T) {
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	for name, row := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"a released module":    {debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3"},
		"a clone":              {debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{commit}}, "devel+0123456789ab"},
		"a clone with changes": {debug.BuildInfo{Settings: []debug.BuildSetting{commit, {Key: "vcs.modified", Value: "true"}}}, "devel+0123456789ab-dirty"},
		"no clone at all":      {debug.BuildInfo{}, "devel"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fromBuild(&row.info); got != row.want {
				t.Errorf("version %q, want %q", got, row.want)
			}
		})
	}
}
