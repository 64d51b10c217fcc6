package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strings"
	"syscall"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/portal"
)

// door says whose part of the work an address is, and which of the two listeners it is behind.
type door struct {
	role    config.Role // "": no part of the work; every process has it
	private bool        // behind the admin listener, where there is one
	both    bool        // behind either
}

// doorOf finds the door of a path without the base of the public address.
func doorOf(path string) door {
	below := func(prefix string) bool { return strings.HasPrefix(path, prefix) }
	switch {
	case path == "/healthz", path == "/readyz", path == "/metrics":
		return door{private: true}
	case below("/debug/pprof/"):
		return door{private: true}
	case below("/assets/"), path == "/preferences":
		return door{both: true}
	case below("/in/"):
		return door{role: config.RoleInbound}
	case path == "/portal", below("/portal/"):
		return door{role: config.RolePortal, both: true} // the dashboard leads to tenants' own pages
	case portal.ForOperators(path):
		return door{role: config.RoleDashboard, private: true}
	}
	return door{role: config.RoleAPI} // and what is nowhere
}

// entrance lets through to all what is behind a listener, of what this process does. The base's
// path is taken off where it is there: some proxies do that themselves, and some do not.
type entrance struct {
	all     http.Handler
	nowhere http.Handler
	roles   config.Roles
	base    *url.URL // nil: none is configured
	private bool     // this is the admin listener
	split   bool     // there are two
}

func (e *entrance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = e.stripped(r)
	d := doorOf(r.URL.Path)
	hasRole := d.role == "" || e.roles.Has(d.role)
	here := !e.split || d.both || d.private == e.private
	if !hasRole || !here {
		e.nowhere.ServeHTTP(w, r)
		return
	}
	e.all.ServeHTTP(w, r)
}

func (e *entrance) stripped(r *http.Request) *http.Request {
	if e.base == nil || e.base.Path == "" || e.private && e.split {
		return r
	}
	path, is := strings.CutPrefix(r.URL.Path, e.base.Path)
	if !is || path != "" && path[0] != '/' {
		return r
	}
	raw, rawIs := strings.CutPrefix(r.URL.RawPath, e.base.EscapedPath())
	if r.URL.RawPath != "" && !rawIs {
		return r
	}
	inner := r.Clone(r.Context())
	if inner.URL.Path, inner.URL.RawPath = path, raw; path == "" {
		inner.URL.Path = "/"
	}
	return inner
}

// serve opens the listeners. Profiles of the process are behind the admin listener alone: they
// show what it works on, and making one costs.
func (a *App) serve(programs *api.API, pages http.Handler) error {
	split := a.cfg.AdminListen != ""
	public := &entrance{all: pages, nowhere: programs.Nowhere(), roles: a.cfg.Roles, base: a.cfg.PublicURL, split: split}
	if err := a.listen(&a.listener, a.cfg.Listen); err != nil {
		return err
	}
	a.server = api.NewServer(a.leaving(public), a.log)
	a.life.onStop("requests", stopSoon, a.stopServing)
	if !split {
		return nil
	}
	if err := a.listen(&a.admin, a.cfg.AdminListen); err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	inside := http.NewServeMux()
	inside.Handle("/", pages)
	inside.HandleFunc("/debug/pprof/", pprof.Index)
	inside.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	inside.HandleFunc("/debug/pprof/profile", pprof.Profile)
	inside.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	inside.HandleFunc("/debug/pprof/trace", pprof.Trace)
	private := *public
	private.all, private.private = inside, true
	a.adminServer = api.NewServer(&private, a.log)
	a.adminServer.WriteTimeout = 0 // a profile takes as long as it was asked to
	a.life.onStop("admin requests", stopSoon, a.stopAdmin)
	return nil
}

func (a *App) listen(into *net.Listener, address string) (err error) {
	if *into, err = net.Listen("tcp", address); err != nil {
		return cannotListen(address, err)
	}
	return nil
}

// cannotListen says what to do about an address that cannot be listened at.
func cannotListen(address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return &config.Refusal{Reason: "cannot listen at " + address + ": the address is already in use; is a waybill running already? --listen or WAYBILL_LISTEN names another address, and :0 any free port"}
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return &config.Refusal{Reason: "cannot listen at " + address + ": this machine has no such address; 0.0.0.0 means all that it has"}
	case errors.Is(err, syscall.EACCES):
		return &config.Refusal{Reason: "cannot listen at " + address + ": this user may not use that port; those from 1024 on are free for all"}
	}
	return fmt.Errorf("cannot listen at %s: %w", address, err)
}

// serveAdmin answers behind the admin listener until it is closed.
func (a *App) serveAdmin(failed chan<- error) {
	if a.admin == nil {
		return
	}
	if err := a.adminServer.Serve(a.admin); !errors.Is(err, http.ErrServerClosed) {
		failed <- fmt.Errorf("serve admin: %w", err)
	}
}

// stopAdmin lets requests that are under way end, but not those that stream.
func (a *App) stopAdmin(ctx context.Context) error {
	if err := a.adminServer.Shutdown(ctx); err != nil {
		return errors.Join(err, a.adminServer.Close())
	}
	if err := a.admin.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// AdminAddr returns the address of the admin listener, "" where there is none.
func (a *App) AdminAddr() string {
	if a.admin == nil {
		return ""
	}
	return a.admin.Addr().String()
}

// dashboardURL is where operators find the dashboard.
func (a *App) dashboardURL() *url.URL {
	if a.admin != nil {
		return listenerURL(a.admin)
	}
	return a.publicURL()
}
