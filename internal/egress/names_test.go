package egress

import (
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// answering starts a name server that has one answer for each type of question; a type that is
// missing is not answered at all.
func answering(t *testing.T, answers map[uint16]func(reply *dns.Msg)) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	srv := &dns.Server{PacketConn: conn, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, req *dns.Msg) {
		answer, ok := answers[req.Question[0].Qtype]
		if !ok {
			return
		}
		reply := new(dns.Msg)
		reply.SetReply(req)
		reply.RecursionAvailable = true
		answer(reply)
		w.WriteMsg(reply)
	})}
	go srv.ActivateAndServe()
	<-started
	t.Cleanup(func() { srv.Shutdown() })
	return conn.LocalAddr().String()
}

// records answers with the records, written as in a zone file.
func records(t *testing.T, lines ...string) func(*dns.Msg) {
	t.Helper()
	var all []dns.RR
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rr)
	}
	return func(reply *dns.Msg) { reply.Answer = all }
}

func failing(code int) func(*dns.Msg) { return func(reply *dns.Msg) { reply.Rcode = code } }

func TestGuard_namesThatLeadSomewhereElse(t *testing.T) {
	none := records(t)
	c := newCanary(t, "127.0.0.1")
	for what, row := range map[string]struct {
		a, aaaa func(*dns.Msg) // nil: no answer
		want    Step           // of the failure; -1: it arrives
	}{
		"an alias of an address inside":       {records(t, "hooks.test. 0 IN CNAME db.internal.", "db.internal. 0 IN A 10.0.0.1"), none, StepPolicy},
		"an alias of this machine":            {records(t, "hooks.test. 0 IN CNAME localhost.", "localhost. 0 IN A 127.0.0.53"), none, StepPolicy},
		"an alias of an allowed address":      {records(t, "hooks.test. 0 IN CNAME edge.test.", "edge.test. 0 IN A 127.0.0.1"), none, -1},
		"an alias of itself":                  {records(t, "hooks.test. 0 IN CNAME hooks.test."), records(t, "hooks.test. 0 IN CNAME hooks.test."), StepLookup},
		"IPv6 alone, inside":                  {none, records(t, "hooks.test. 0 IN AAAA fd00::1"), StepPolicy},
		"IPv6 alone, an embedded IPv4":        {none, records(t, "hooks.test. 0 IN AAAA 64:ff9b::7f00:1"), StepPolicy},
		"IPv6 that fails beside a good IPv4":  {records(t, "hooks.test. 0 IN A 127.0.0.1"), failing(dns.RcodeServerFailure), -1},
		"IPv6 inside beside a failing IPv4":   {failing(dns.RcodeServerFailure), records(t, "hooks.test. 0 IN AAAA ::1"), StepPolicy},
		"IPv6 of the link beside a good IPv4": {records(t, "hooks.test. 0 IN A 127.0.0.1"), records(t, "hooks.test. 0 IN AAAA fe80::1"), StepPolicy},
		"a good IPv4 beside one inside":       {records(t, "hooks.test. 0 IN A 127.0.0.1", "hooks.test. 0 IN A 10.0.0.1"), none, StepPolicy},
		"one inside beside a good IPv4":       {records(t, "hooks.test. 0 IN A 10.0.0.1", "hooks.test. 0 IN A 127.0.0.1"), none, StepPolicy},
		"no address at all":                   {none, none, StepLookup},
		"both fail":                           {failing(dns.RcodeServerFailure), failing(dns.RcodeServerFailure), StepLookup},
	} {
		t.Run(what, func(t *testing.T) {
			g, err := New(Config{Policy: Policy{Allow: prefixes("127.0.0.1/32")}, Resolver: answering(t, map[uint16]func(*dns.Msg){dns.TypeA: row.a, dns.TypeAAAA: row.aaaa})})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(g.Close)
			_, err = post(t, g, "http://hooks.test:"+c.port+"/", false)
			failed, ok := errors.AsType[*DialError](err)
			switch {
			case row.want < 0 && err != nil:
				t.Errorf("%v, want that it arrives", err)
			case row.want >= 0 && (!ok || failed.Step != row.want):
				t.Errorf("%v, want a failure of the %s", err, row.want)
			}
		})
	}
}

// A host with IPv6 alone is reached, and an address in brackets is the Host it is called by.
func TestGuard_reachesHostsThatHaveIPv6Alone(t *testing.T) {
	listener, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	}
	hosts := make(chan string, 2)
	srv := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hosts <- r.Host })}
	go srv.Serve(listener)
	t.Cleanup(func() { srv.Close() })
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	g, err := New(Config{Policy: Policy{Allow: prefixes("::1/128")}, Resolver: answering(t, map[uint16]func(*dns.Msg){
		dns.TypeA: records(t), dns.TypeAAAA: records(t, "hooks.test. 0 IN AAAA ::1"),
	})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	for _, host := range []string{"hooks.test:" + port, "[::1]:" + port} {
		if _, err := post(t, g, "http://"+host+"/", false); err != nil {
			t.Errorf("%s: %v", host, err)
		} else if got := <-hosts; got != host {
			t.Errorf("called %s, want %s", got, host)
		}
	}
}

// A name server that says nothing is called that, and before the usual attempt's time is up.
func TestGuard_aSilentNameServerIsAFailedLookup(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes five seconds")
	}
	t.Parallel()
	g, err := New(Config{Resolver: answering(t, nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	began := time.Now()
	_, err = post(t, g, "http://hooks.test/", false)
	failed, ok := errors.AsType[*DialError](err)
	if !ok || failed.Step != StepLookup || failed.NoSuchHost() {
		t.Errorf("%v, want a failed lookup of a name that may exist", err)
	}
	if took := time.Since(began); took > lookupLimit+2*time.Second {
		t.Errorf("it took %v", took)
	}
}
