//go:build unix

package doctor

import "golang.org/x/sys/unix"

// freeBytes is how much of the disk a program that is not root may still use.
func freeBytes(dir string) (int64, bool) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, false
	}
	return int64(stat.Bavail) * int64(stat.Bsize), true
}
