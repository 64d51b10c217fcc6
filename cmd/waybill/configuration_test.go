package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/doctor"
)

func TestConfigPrint_saysWhereEachValueComesFromAndHidesSecrets(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "waybill.yaml")
	if err := os.WriteFile(file, []byte("max_in_flight: 7\nlisten: 127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{
		"WAYBILL_CONFIG=" + file, "WAYBILL_LISTEN=127.0.0.1:2", "WAYBILL_API_KEY=tell-nobody",
		"WAYBILL_DATABASE_URL=postgres://app:hunter2@db/app",
	}
	out := ok(t, dir, env, "config", "print", "--json", "--max-payload", "1KiB")
	if strings.Contains(out, "tell-nobody") || strings.Contains(out, "hunter2") {
		t.Fatalf("a secret is in\n%s", out)
	}
	var values []config.Value
	if err := json.Unmarshal([]byte(out), &values); err != nil {
		t.Fatal(err)
	}
	by := map[string]config.Value{}
	for _, v := range values {
		by[v.Key] = v
	}
	for _, want := range []config.Value{
		{Key: "max_in_flight", Value: "7", From: "max_in_flight in " + file},
		{Key: "listen", Value: "127.0.0.1:2", From: "WAYBILL_LISTEN"},
		{Key: "max_payload", Value: "1KiB", From: "--max-payload"},
		{Key: "retention", Value: "30d", From: "default"},
		{Key: "api_key", Value: "[secret]", From: "WAYBILL_API_KEY"},
		{Key: "database_url", Value: "postgres://db/app", From: "WAYBILL_DATABASE_URL"},
		{Key: "encryption_key", Value: "", From: "default"},
	} {
		if by[want.Key] != want {
			t.Errorf("%s is %+v, want %+v", want.Key, by[want.Key], want)
		}
	}
}

func TestConfigCheck_saysWhatServeWouldSay(t *testing.T) {
	dir := t.TempDir()
	if out := ok(t, dir, []string{"WAYBILL_API_KEY=k"}, "config", "check"); !strings.Contains(out, "can be used") {
		t.Errorf("it prints %q", out)
	}
	for _, c := range []struct {
		env  string
		code int
		says string
	}{
		{"WAYBILL_MAX_PAYLOAD=2MiB", exitUsage, "WAYBILL_MAX_PAYLOAD: must be from 1 byte to 1MiB"},
		{"WAYBILL_LISTEN=0.0.0.0:1", exitRefused, "longer key"},
	} {
		r := waybill(t, dir, []string{"WAYBILL_API_KEY=k", c.env}, "", "config", "check")
		if r.code != c.code || !strings.Contains(r.err, c.says) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: %v", c.env, r)
		}
	}
}

func TestHealthcheck_asksTheServerTheSettingsDescribe(t *testing.T) {
	s := serve(t)
	address := strings.TrimPrefix(s.env[len(s.env)-1], "WAYBILL_URL=")
	wait(t, "the server to be ready", func() bool {
		return waybill(t, s.dir, []string{"WAYBILL_LISTEN=" + strings.TrimPrefix(address, "http://")}, "", "healthcheck", "--ready").code == exitOK
	})
	ok(t, s.dir, nil, "healthcheck", "--url", address)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if r := waybill(t, s.dir, []string{"WAYBILL_LISTEN=" + l.Addr().String()}, "", "healthcheck"); r.code != exitUnreachable {
		t.Errorf("nobody there: %v", r)
	}
}

func TestHere_isTheAddressFromTheSameMachine(t *testing.T) {
	for listen, want := range map[string]string{
		"0.0.0.0:8420": "127.0.0.1:8420", ":8420": "127.0.0.1:8420", "[::]:8420": "127.0.0.1:8420", "10.0.0.1:80": "10.0.0.1:80",
	} {
		if got := here(listen); got != want {
			t.Errorf("%s: %s, want %s", listen, got, want)
		}
	}
}

func TestDoctor_findsNothingBrokenInAFreshDirectory(t *testing.T) {
	dir := t.TempDir()
	out := ok(t, dir, []string{"WAYBILL_API_KEY=k"}, "doctor", "--json")
	var findings []doctor.Finding
	if err := json.Unmarshal([]byte(out), &findings); err != nil || len(findings) < 4 {
		t.Errorf("%v\n%s", err, out)
	}
	if r := waybill(t, dir, nil, "", "doctor"); r.code != exitFailed || !strings.Contains(r.out, "failure  settings") {
		t.Errorf("without a key: %v", r)
	}
}

func TestMan_hasAPageForEveryCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man")
	if r := inProcess(t, "man", dir); r.code != exitOK {
		t.Fatal(r)
	}
	for _, words := range commands(t) {
		page := strings.Join(append([]string{"waybill"}, words...), "-") + ".1"
		if _, err := os.Stat(filepath.Join(dir, page)); err != nil {
			t.Error(err)
		}
	}
}
