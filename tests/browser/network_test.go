package browser

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// inside marks the process that runs in the network of its own.
const inside = "WAYBILL_BROWSER_TESTS_INSIDE"

// publicAddress is where receivers are. In this network it is on the loopback interface; nothing
// leaves the machine.
const publicAddress = "93.184.215.14"

// TestMain runs the tests in a process with a network of its own. What needs the machine's network,
// npm and the compiler, is done before.
func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := prepare(cmd); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	err := cmd.Run()
	if failed, is := errors.AsType[*exec.ExitError](err); is {
		os.Exit(failed.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "a network namespace is needed:", err)
		os.Exit(1)
	}
}

// network brings the loopback interface up with the receivers' address, and the name server that
// this machine asks, which here is us.
func network(t *testing.T) {
	t.Helper()
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run("link", "set", "lo", "up")
	run("addr", "add", publicAddress+"/32", "dev", "lo")
	server := nameServer(t)
	if ip := net.ParseIP(server); !ip.IsLoopback() {
		run("addr", "add", server, "dev", "lo")
	}
	conn, err := net.ListenPacket("udp", net.JoinHostPort(server, "53"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go answerNames(conn)
}

// nameServer is the first one of resolv.conf, or where a machine without one asks.
func nameServer(t *testing.T) string {
	text, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			return fields[1]
		}
	}
	return "127.0.0.1"
}

// answerNames says of every name below example.com that it is the receivers' address.
func answerNames(conn net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return // closed
		}
		var asked dnsmessage.Message
		if asked.Unpack(buf[:n]) != nil || len(asked.Questions) != 1 {
			continue
		}
		q := asked.Questions[0]
		reply := dnsmessage.Message{Header: dnsmessage.Header{ID: asked.ID, Response: true, RecursionAvailable: true}, Questions: asked.Questions}
		switch known := strings.HasSuffix(strings.ToLower(q.Name.String()), ".example.com."); {
		case known && q.Type == dnsmessage.TypeA:
			reply.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60},
				Body:   &dnsmessage.AResource{A: [4]byte(net.ParseIP(publicAddress).To4())},
			}}
		case !known:
			reply.RCode = dnsmessage.RCodeNameError
		}
		if raw, err := reply.Pack(); err == nil {
			_, _ = conn.WriteTo(raw, from)
		}
	}
}
