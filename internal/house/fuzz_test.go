package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	fuzzFunction = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(f \*testing\.F\)`)
	fuzzList     = regexp.MustCompile(`(?m)^FUZZ = ((?:.*\\\n)*.*)$`)
)

// make fuzz is what CI runs each night; a fuzz function that is not in its list is run by nobody.
func TestHouse_everyFuzzFunctionIsInTheNightlyList(t *testing.T) {
	const root = "../.."
	var want []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		for _, match := range fuzzFunction.FindAllSubmatch(text, -1) {
			want = append(want, filepath.ToSlash(dir)+"."+string(match[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	list := fuzzList.FindSubmatch(makefile)
	if list == nil {
		t.Fatal("the Makefile has no list FUZZ")
	}
	got := strings.Fields(strings.ReplaceAll(string(list[1]), "\\\n", " "))
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the list FUZZ in the Makefile (- what there is, + what it says)\n%s", diff)
	}
	if len(want) < 6 {
		t.Errorf("only %d fuzz functions: the rule looks in the wrong place", len(want))
	}
}
