// Package node runs test programs on Node.js, with the npm packages that package.json beside it
// names at exact versions: other people's code to compare with ours.
//
// The packages are installed at test time into an ignored folder and used from there again. A
// machine that can do neither fails the test and says why; nothing is skipped.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Command prepares a Node.js program that can require the packages. The program is source text.
// It is not tied to the test's context, which ends before the test's cleanups: a program that
// serves is ended by them.
func Command(t testing.TB, program string, args ...string) *exec.Cmd {
	t.Helper()
	return CommandWith(t, "", program, args...)
}

// CommandWith is Command with the packages of a folder below this one, which has a package.json of
// its own: large ones that one test needs.
func CommandWith(t testing.TB, folder, program string, args ...string) *exec.Cmd {
	t.Helper()
	modules, err := installIn(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("this test needs Node.js: %v", err)
	}
	cmd := exec.Command(node, append([]string{"--input-type=commonjs", "--eval", program, "--"}, args...)...)
	cmd.Dir = filepath.Dir(modules) // an evaluated program looks for packages from where it runs
	return cmd
}

// Modules returns the folder that holds the installed packages.
func Modules(t testing.TB) string {
	t.Helper()
	modules, err := Install(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return modules
}

// Install is Modules for what is no test.
func Install(ctx context.Context) (modules string, err error) { return installIn(ctx, "") }

func installIn(ctx context.Context, folder string) (modules string, err error) {
	dir, err := home()
	if err != nil {
		return "", fmt.Errorf("npm packages: %w", err)
	}
	dir = filepath.Join(dir, folder)
	unlock, err := lock(filepath.Join(dir, "package.json"))
	if err != nil {
		return "", fmt.Errorf("npm packages: %w", err)
	}
	defer unlock()
	wanted, err := wanted(dir)
	if err != nil {
		return "", fmt.Errorf("npm packages: %w", err)
	}
	if !installed(dir, wanted) {
		if err := install(ctx, dir); err != nil {
			return "", fmt.Errorf("this test needs npm packages, and the npm registry could not be reached (or npm is missing): %w", err)
		}
		if !installed(dir, wanted) {
			return "", fmt.Errorf("npm did not install %v", wanted)
		}
	}
	return filepath.Join(dir, "node_modules"), nil
}

// home is this package's folder, found from the folder of the test, which may be in a module of its
// own.
func home() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if here := filepath.Join(dir, "tests", "node"); exists(filepath.Join(here, "package.json")) {
			return here, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no tests/node above the test")
		}
		dir = filepath.Dir(dir)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lock keeps test processes that run at the same time from installing into each other.
func lock(path string) (unlock func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

func wanted(dir string) (map[string]string, error) {
	var manifest struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return nil, err
	}
	return manifest.Dependencies, nil
}

func installed(dir string, wanted map[string]string) bool {
	for name, version := range wanted {
		text, err := os.ReadFile(filepath.Join(dir, "node_modules", filepath.FromSlash(name), "package.json"))
		if errors.Is(err, fs.ErrNotExist) {
			return false
		}
		var manifest struct {
			Version string `json:"version"`
		}
		if err != nil || json.Unmarshal(text, &manifest) != nil || manifest.Version != version {
			return false
		}
	}
	return true
}

func install(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts")
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm install: %w\n%s", err, out)
	}
	return nil
}
