package app

import (
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/portal"
)

// pages puts what people look at beside what programs call: one listener serves both.
func (a *App) pages(programs *api.API) (http.Handler, error) {
	look := portal.Look{Name: a.cfg.PortalName, Accent: a.cfg.PortalAccent}
	if at := a.cfg.PortalLogo; at != "" {
		var err error
		if look.Logo, err = os.ReadFile(at); err != nil {
			return nil, fmt.Errorf("WAYBILL_PORTAL_LOGO: %w", err)
		}
	}
	pages, err := portal.New(portal.Config{
		API: programs, Sessions: a.sessions, Who: programs.Who, Clock: &a.clock, Log: a.log,
		PublicURL: a.cfg.PublicURL, FrameAncestors: a.cfg.FrameAncestors, Look: look,
	})
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if forPeople(r.URL.Path) {
			pages.ServeHTTP(w, r)
			return
		}
		programs.ServeHTTP(w, r)
	}), nil
}

// forPeople tells the addresses of pages from those of the API.
func forPeople(path string) bool {
	return portal.ForOperators(path) || path == "/portal" || strings.HasPrefix(path, "/portal/") || strings.HasPrefix(path, "/assets/")
}
