// Command clients writes clients/openapi.json, which is the document of this tree's HTTP API
// without a version, and makes the clients from it. It runs from the root of the clone, as
// "make generate"; the generators' versions stand in tools/go.mod and in
// clients/typescript/package.json.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/waybill-dev/waybill/internal/api"
)

func main() {
	if err := generate(); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate() error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	clients := filepath.Join(root, "clients")
	document, err := document()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(clients, "openapi.json"), document, 0o644); err != nil {
		return err
	}
	goDir, tsDir := filepath.Join(clients, "go"), filepath.Join(clients, "typescript")
	for _, step := range []struct {
		dir  string
		args []string
	}{
		{goDir, []string{"go", "tool", "-modfile=" + filepath.Join(root, "tools", "go.mod"), "oapi-codegen", "-config", "oapi-codegen.yaml", "../openapi.json"}},
		{tsDir, []string{"npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"}},
		{tsDir, []string{"npx", "--no-install", "openapi-typescript", "../openapi.json", "--default-non-nullable=false", "--output", "src/api.gen.ts"}},
	} {
		cmd := exec.Command(step.args[0], step.args[1:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = step.dir, os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s in %s: %w", step.args[0], step.dir, err)
		}
	}
	for _, path := range []string{filepath.Join(goDir, "api.gen.go"), filepath.Join(tsDir, "src", "api.gen.ts")} {
		if err := sign(path, document); err != nil {
			return err
		}
	}
	return nil
}

// document is what the server prints, of no version, with a line for each member.
func document() ([]byte, error) {
	text, err := api.Document("v1")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// sign writes, at the top of a generated file, the digests of the document it was made from and
// of the file itself, so that a test without the generators can tell whether it is up to date and
// as it was generated.
func sign(path string, document []byte) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	// The Go package has a comment of its own, in doc.go; the generator's says nothing of it.
	text = regexp.MustCompile(`^// Package .*\n//\n(// Code generated .*\n)package `).ReplaceAll(text, []byte("$1\npackage "))
	head := fmt.Sprintf("// openapi.json sha256 %x\n// generated sha256 %x\n\n", sha256.Sum256(document), sha256.Sum256(text))
	return os.WriteFile(path, append([]byte(head), text...), 0o644)
}
