// Package redistest gives tests a real Redis, started from the installed binary, and a line to it
// that can be spoilt.
package redistest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Server is a throw-away Redis on a socket of its own. It is gone when the test ends.
type Server struct {
	tb       testing.TB
	dir      string
	settings []string
	cmd      *exec.Cmd
	log      bytes.Buffer
}

// Start runs a server. settings are arguments of redis-server, "--maxmemory", "1mb"; without
// "--appendonly", "yes" it keeps nothing over Kill.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		tb.Fatal("redis-server is not installed; make prepare installs it where it may")
	}
	dir, err := os.MkdirTemp("", "waybill-redis-") // the path of a socket must be short
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, dir: dir, settings: settings}
	tb.Cleanup(func() {
		s.Kill()
		os.RemoveAll(dir)
	})
	s.Restart()
	return s
}

// Socket is the path of the server's socket. It stays the same over Kill and Restart.
func (s *Server) Socket() string { return filepath.Join(s.dir, "redis.sock") }

// Kill ends the server as kill -9 does. Nothing happens if it does not run.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // killed, which is an error
	s.cmd = nil
}

// Restart runs the server, again after Kill, and returns once it answers.
func (s *Server) Restart() {
	s.tb.Helper()
	s.log.Reset()
	args := append([]string{"--port", "0", "--unixsocket", s.Socket(), "--dir", s.dir, "--save", ""}, s.settings...)
	s.cmd = exec.Command("redis-server", args...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	// It must not outlive a test that is killed itself.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		if answers(s.Socket()) {
			return
		}
		if time.Now().After(deadline) {
			s.Kill()
			s.tb.Fatalf("redis-server does not answer:\n%s", s.log.String())
		}
		<-time.After(5 * time.Millisecond)
	}
}

func answers(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := fmt.Fprint(conn, "PING\r\n"); err != nil {
		return false
	}
	reply := make([]byte, 5)
	_, err = io.ReadFull(conn, reply)
	return err == nil && string(reply) == "+PONG"
}

// Line is a way to a server that can be spoilt. Its address is a socket too.
type Line struct {
	target   string
	listener net.Listener

	mu    sync.Mutex
	conns map[net.Conn]bool
	delay time.Duration
	mute  bool
}

// NewLine makes a line to the server.
func (s *Server) NewLine() *Line {
	s.tb.Helper()
	listener, err := net.Listen("unix", filepath.Join(s.dir, fmt.Sprintf("line%d.sock", time.Now().UnixNano())))
	if err != nil {
		s.tb.Fatal(err)
	}
	l := &Line{target: s.Socket(), listener: listener, conns: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { l.serve(conn) })
		}
	})
	s.tb.Cleanup(func() {
		listener.Close()
		l.Spoil(0, false)
		l.Cut()
		serving.Wait()
	})
	return l
}

// Socket is the line's own address.
func (l *Line) Socket() string { return l.listener.Addr().String() }

// Spoil makes every answer late by delay or, where mute, never come; what is asked still arrives.
func (l *Line) Spoil(delay time.Duration, mute bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay, l.mute = delay, mute
}

// Cut breaks every connection.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		conn.Close()
	}
}

func (l *Line) serve(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("unix", l.target)
	if err != nil {
		return
	}
	defer far.Close()
	l.mu.Lock()
	l.conns[near], l.conns[far] = true, true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, near)
		delete(l.conns, far)
	}()
	go func() {
		_, _ = io.Copy(far, near) // ends when either side does
		far.Close()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := far.Read(buf)
		if err != nil {
			return
		}
		l.mu.Lock()
		delay, mute := l.delay, l.mute
		l.mu.Unlock()
		if delay > 0 {
			<-time.After(delay)
		}
		if mute {
			continue
		}
		if _, err := near.Write(buf[:n]); err != nil {
			return
		}
	}
}
