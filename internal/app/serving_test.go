package app

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/waybill-dev/waybill/internal/config"
)

var (
	shown   = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Path", r.URL.EscapedPath()) })
	nowhere = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
)

func all() config.Roles {
	return config.Roles{config.RoleAPI, config.RoleInbound, config.RolePortal, config.RoleDashboard, config.RoleDispatch}
}

func visit(e *entrance, path string) (status int, reached string) {
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Header().Get("Path")
}

func TestEntrance_whatIsBehindWhichListener(t *testing.T) {
	public := &entrance{all: shown, nowhere: nowhere, roles: all(), split: true}
	private := &entrance{all: shown, nowhere: nowhere, roles: all(), split: true, private: true}
	one := &entrance{all: shown, nowhere: nowhere, roles: all()}
	for path, want := range map[string]struct{ public, private int }{
		"/healthz":                       {404, 200},
		"/readyz":                        {404, 200},
		"/metrics":                       {404, 200},
		"/debug/pprof/":                  {404, 200},
		"/debug/pprof/heap":              {404, 200},
		"/":                              {404, 200},
		"/sign-in":                       {404, 200},
		"/sign-in/code":                  {404, 200},
		"/tenants/acme":                  {404, 200},
		"/assets/app.css":                {200, 200},
		"/v1/tenants":                    {200, 404},
		"/openapi.json":                  {200, 404},
		"/docs":                          {200, 404},
		"/.well-known/waybill/acme/keys": {200, 404},
		"/portal/acme/deliveries":        {200, 200},
		"/portal/open/code":              {200, 200},
		"/in/stripe":                     {200, 404},
		"/healthz/../metrics":            {200, 404}, // a path that names nothing, and is told so behind it
	} {
		if status, _ := visit(public, path); status != want.public {
			t.Errorf("%s on the public listener: %d, want %d", path, status, want.public)
		}
		if status, _ := visit(private, path); status != want.private {
			t.Errorf("%s on the admin listener: %d, want %d", path, status, want.private)
		}
		if status, _ := visit(one, path); status != 200 {
			t.Errorf("%s on the only listener: %d", path, status)
		}
	}
}

func TestEntrance_rolesAreWhatIsThere(t *testing.T) {
	paths := map[config.Role]string{
		config.RoleAPI: "/v1/tenants", config.RoleInbound: "/in/stripe", config.RolePortal: "/portal/acme/", config.RoleDashboard: "/",
	}
	for role := range paths {
		e := &entrance{all: shown, nowhere: nowhere, roles: config.Roles{role}}
		for of, path := range paths {
			want := 404
			if of == role {
				want = 200
			}
			if status, _ := visit(e, path); status != want {
				t.Errorf("as %s, %s: %d, want %d", role, path, status, want)
			}
		}
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			if status, _ := visit(e, path); status != 200 {
				t.Errorf("as %s, %s: %d", role, path, status)
			}
		}
	}
}

func TestEntrance_takesTheBaseOff(t *testing.T) {
	base, err := url.Parse("https://example.com/hooks")
	if err != nil {
		t.Fatal(err)
	}
	e := &entrance{all: shown, nowhere: nowhere, roles: all(), base: base}
	for path, want := range map[string]string{
		"/hooks/v1/tenants":          "/v1/tenants",
		"/v1/tenants":                "/v1/tenants", // the proxy took it off
		"/hooks":                     "/",
		"/hooks/":                    "/",
		"/hooksmith/x":               "/hooksmith/x",
		"/hooks/portal/a%2Fb/x":      "/portal/a%2Fb/x",
		"/hooks/hooks/v1":            "/hooks/v1",
		"/hooks/v1/tenants/a%20b":    "/v1/tenants/a%20b",
		"/hooks/../v1/tenants":       "/../v1/tenants",
		"/v1/tenants/hooks/v1/hooks": "/v1/tenants/hooks/v1/hooks",
	} {
		if _, reached := visit(e, path); reached != want {
			t.Errorf("%s leads to %s, want %s", path, reached, want)
		}
	}
}
