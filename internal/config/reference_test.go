package config

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const referencePath = "../../docs/configuration.md"

// reference writes the table of docs/configuration.md.
func reference() string {
	var b strings.Builder
	b.WriteString("| variable | default | |\n|---|---|---|\n")
	for _, s := range Settings() {
		fallback := ""
		if s.Default != "" && s.Key != "user_agent" { // its default names the build
			fallback = "`" + s.Default + "`"
		}
		variable := "`" + s.Variable() + "`"
		if s.Secret {
			variable += ", `_FILE`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", variable, fallback, s.Usage)
	}
	return b.String()
}

func TestSettings_referenceIsComplete(t *testing.T) {
	page, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "|") {
			table.WriteString(line)
		}
	}
	if diff := cmp.Diff(reference(), table.String()); diff != "" {
		t.Errorf("the table of docs/configuration.md is not that of the settings:\n%s", diff)
	}
}
