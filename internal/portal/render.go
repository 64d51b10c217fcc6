package portal

import (
	"bytes"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

//go:embed templates
var templateFiles embed.FS

// Page is what a handler shows.
type Page struct {
	Name    string // the template, without .html
	Title   string
	Section string // the name of the section it belongs to, as in Frame.Nav
	Status  int    // 0: 200
	// Refresh: while nothing is selected, script asks for the page again after so many seconds and
	// puts in what changed in the elements marked data-live-part, each with an id of its own.
	Refresh int
	Data    any
}

// view is what a template is executed with.
type view struct {
	Page
	Frame
	Look     Look
	Theme    string
	Zone     string // UTC, or the name of the reader's zone
	Now      time.Time
	Flash    string
	Here     string // path and query of this page, for forms that lead back
	Tenant   string
	May      func(act string) bool // which acts the page may offer
	StyleAdd string
	Logo     string
}

// parse reads the templates: each page with the layout and the parts.
func (b *Base) parse() (map[string]*template.Template, error) {
	shared, err := template.New("layout.html").Funcs(b.funcs()).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html", "templates/operatorparts.html")
	if err != nil {
		return nil, err
	}
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	pages := map[string]*template.Template{}
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".html")
		if name == "layout" || name == "parts" || name == "operatorparts" {
			continue
		}
		page, err := template.Must(shared.Clone()).ParseFS(templateFiles, file)
		if err != nil {
			return nil, err
		}
		pages[name] = page
	}
	return pages, nil
}

// Show answers with a page. It is rendered whole before its first byte goes out, so an error
// leaves nothing half-shown.
func (v *Visit) Show(p Page) error {
	t, there := v.base.pages[p.Name]
	if !there {
		return fmt.Errorf("there is no page %q", p.Name)
	}
	if p.Status == 0 {
		p.Status = http.StatusOK
	}
	shown := view{
		Page: p, Frame: v.Frame, Look: v.base.cfg.Look, Theme: v.theme(), Zone: "UTC",
		Now: v.Now, Here: v.base.root + v.URL.RequestURI(), Tenant: v.Tenant, Flash: v.flash(),
		Logo: v.base.logo(), May: func(string) bool { return true },
	}
	if v.Method != http.MethodGet {
		shown.Here = "" // the answer to a form has no address to come back to
	}
	if v.prefs.zone != nil {
		shown.Zone = v.prefs.zone.String()
	}
	if v.Frame.Accent != "" && colour.MatchString(v.Frame.Accent) {
		shown.StyleAdd = v.base.root + "/assets/accent-" + strings.TrimPrefix(v.Frame.Accent, "#") + ".css"
	}
	if v.May != nil {
		shown.May = v.May
	}
	var page bytes.Buffer
	if err := t.ExecuteTemplate(&page, "layout.html", shown); err != nil {
		return err
	}
	if v.prefs.zone != nil {
		page = *bytes.NewBuffer(inZone(page.Bytes(), v.prefs.zone, v.Now))
	}
	v.base.write(v.w, p.Status, &page)
	return nil
}

// theme is the reader's choice, else the host's; "" follows the system.
func (v *Visit) theme() string {
	if v.prefs.theme == "" && (v.Frame.Mode == "light" || v.Frame.Mode == "dark") {
		return v.Frame.Mode
	}
	return v.prefs.theme
}

func (b *Base) logo() string {
	for _, name := range []string{"logo.svg", "logo.png"} {
		if at := b.assetPath(name); at != "" {
			return at
		}
	}
	return ""
}

// funcs are the words templates have.
func (b *Base) funcs() template.FuncMap {
	return template.FuncMap{
		"path":    b.Path,
		"asset":   b.assetPath,
		"icon":    icon,
		"at":      at,
		"near":    near,
		"span":    spell,
		"num":     grouped,
		"capped":  capped,
		"ms":      milliseconds,
		"size":    byteCount,
		"volume":  volume,
		"plain":   plain,
		"host":    hostOf,
		"rest":    restOf,
		"key":     func() string { return rand.Text() },
		"dict":    dict,
		"list":    func(items ...string) []string { return items },
		"state":   stateChip,
		"chip":    func(tone, icon, word string) chip { return chip{tone, icon, word} },
		"short":   short,
		"some":    some,
		"query":   escapeQuery,
		"join":    strings.Join,
		"stamp":   func(t *time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
		"seconds": func(s float64) string { return spell(time.Duration(s * float64(time.Second))) },
		"choices": func() []choice { return choices },
		"lines":   func(s string) []string { return strings.Split(s, "\n") },
	}
}

func escapeQuery(s string) string { return url.QueryEscape(s) }

func icon(name string) template.HTML {
	return template.HTML(`<svg class="i" aria-hidden="true"><use href="#i-` + template.HTMLEscapeString(name) + `"/></svg>`)
}

// dict gives a template part several values by name.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, errors.New("dict wants names and values in turn")
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is no name", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}
