// Package deploy_test holds what is in deploy, and beside it, to what the program really takes.
package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/knadh/koanf/parsers/yaml"

	"github.com/waybill-dev/waybill/internal/config"
)

// files are everything that starts the program somewhere.
var files = []string{
	"../Dockerfile", "../compose.yaml", "systemd/waybill.service",
	"helm/waybill/values.yaml", "helm/waybill/templates/_env.tpl",
}

func TestDeploy_namesOnlySettingsThereAre(t *testing.T) {
	known := map[string]bool{"WAYBILL_CONFIG": true}
	for _, s := range config.Settings() {
		known[s.Variable()] = true
		if s.Secret {
			known[s.Variable()+"_FILE"] = true
		}
	}
	variable := regexp.MustCompile(`\bWAYBILL_[A-Z_]+\b`)
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		named := variable.FindAllString(string(text), -1)
		if len(named) == 0 {
			t.Errorf("%s names no setting", name)
		}
		for _, v := range named {
			if !known[v] {
				t.Errorf("%s names %s, which is no setting", name, v)
			}
		}
	}
}

// The stop of the container and of the unit must outlast the program's own.
func TestDeploy_waitsLongerThanTheProgramTakesToStop(t *testing.T) {
	cfg, err := config.Load(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	for name, pattern := range map[string]string{
		"../compose.yaml":          `stop_grace_period: (\S+)`,
		"systemd/waybill.service":  `TimeoutStopSec=(\S+)`,
		"helm/waybill/values.yaml": `terminationGracePeriodSeconds: (\S+)`,
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(pattern).FindStringSubmatch(string(text))
		if m == nil {
			t.Errorf("%s does not say how long a stop may take", name)
			continue
		}
		grace, err := time.ParseDuration(strings.TrimSuffix(m[1], "s") + "s")
		if err != nil || grace <= cfg.ShutdownGrace {
			t.Errorf("%s gives it %s, the program takes up to %s", name, m[1], cfg.ShutdownGrace)
		}
	}
}

func TestDeploy_yamlIsYAML(t *testing.T) {
	found := []string{"../compose.yaml", "../.goreleaser.yaml"}
	for _, pattern := range []string{"*/*.yaml", "helm/waybill/*.yaml"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, more...)
	}
	if !slices.Contains(found, "prometheus/alerts.yaml") || !slices.Contains(found, "helm/waybill/Chart.yaml") {
		t.Fatalf("only %v", found)
	}
	for _, name := range found {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if values, err := yaml.Parser().Unmarshal(text); err != nil || len(values) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
