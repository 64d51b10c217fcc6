//go:build unix

package sqlite

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// ErrInUse says that another process dispatches from the file.
var ErrInUse = errors.New("another waybill serves this database")

// FileLock is the right to dispatch from a database file.
type FileLock struct {
	file *os.File
}

// Lock takes the right to dispatch from the database file at path, for as long as the process
// lives or until Unlock. Whoever dispatches must hold it: it is the lease that elsewhere is a
// heartbeat, and the kernel ends it with the process, so a crashed server's successor need not
// wait. The lock is on a file of its own, path + ".lock": one on the database itself would be
// SQLite's business. ErrInUse if another process has it.
func Lock(path string) (*FileLock, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, placed(path, syscall.EISDIR)
	}
	name := path + ".lock"
	for {
		file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, placed(path, fmt.Errorf("lock %s: %w", path, err))
		}
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			holder := make([]byte, 20)
			n, _ := file.ReadAt(holder, 0)
			_ = file.Close()
			return nil, fmt.Errorf("%w: %s is locked by process %s", ErrInUse, name, holder[:n])
		}
		if err != nil {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !named(file, name) {
			_ = file.Close() // it was removed between our open and our lock: lock the new one
			continue
		}
		// Who holds it, for the message above. The lock stands without it.
		if err := file.Truncate(0); err == nil {
			_, _ = file.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
		}
		return &FileLock{file: file}, nil
	}
}

// named reports whether name still leads to the open file.
func named(file *os.File, name string) bool {
	mine, err1 := file.Stat()
	now, err2 := os.Stat(name)
	return err1 == nil && err2 == nil && os.SameFile(mine, now)
}

// Unlock gives the right up and removes the file. It is removed while it is still locked, and
// whoever opened it before finds by its name that the lock it got is on nothing (Lock).
func (l *FileLock) Unlock() error {
	return errors.Join(os.Remove(l.file.Name()), l.file.Close())
}
