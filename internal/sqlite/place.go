package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

// ErrPlace says that the file cannot be a database there: the path, or its rights, must be changed.
var ErrPlace = errors.New("database file")

// placed makes a sentence of an error that the file's place is to blame for. Others are returned
// as they are.
func placed(path string, err error) error {
	dir := filepath.Dir(path)
	if abs, absErr := filepath.Abs(dir); absErr == nil {
		dir = abs
	}
	said, _ := errors.AsType[*driver.Error](err)
	code := 0
	if said != nil {
		code = said.Code() & 0xff
	}
	switch info, statErr := os.Stat(path); {
	case statErr == nil && info.IsDir():
		return fmt.Errorf("%w: %s is a directory; name a file in it", ErrPlace, path)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is no directory %s for %s to be in; make it first", ErrPlace, dir, filepath.Base(path))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), code == codes.SQLITE_READONLY, code == codes.SQLITE_CANTOPEN:
		return fmt.Errorf("%w: this process may not write %s, or into its directory %s (%w)", ErrPlace, filepath.Base(path), dir, err)
	case errors.Is(err, syscall.ENOSPC), code == codes.SQLITE_FULL:
		return fmt.Errorf("%w: there is no room left in %s (%w)", ErrPlace, dir, err)
	case code == codes.SQLITE_NOTADB:
		return fmt.Errorf("%w: %s is not a SQLite database; nothing in it was changed", ErrPlace, path)
	}
	return err
}
