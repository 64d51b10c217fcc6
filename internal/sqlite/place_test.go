package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/sqlite"
)

func TestOpen_saysWhatIsWrongWithThePlace(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("these are notes and no database\n", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                            "is a directory; name a file in it",
		filepath.Join(dir, "no", "db"): "there is no directory " + filepath.Join(dir, "no"),
		text:                           "notes.txt is not a SQLite database; nothing in it was changed",
	} {
		_, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if !errors.Is(err, sqlite.ErrPlace) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to say %q", path, err, want)
		}
	}
	if kept, err := os.ReadFile(text); err != nil || !strings.HasPrefix(string(kept), "these are notes") {
		t.Errorf("the file is %.20q, %v", kept, err)
	}
}
