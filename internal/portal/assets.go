package portal

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

//go:embed assets/app.css assets/app.js
var assetFiles embed.FS

// asset is a file that pages load. Its address holds its digest, so that it can be kept for ever.
type asset struct {
	kind string
	data []byte
	at   string // its name in the address
}

var colour = regexp.MustCompile(`^#[0-9A-Fa-f]{6}$`)

// loadAssets reads what is embedded, and makes of the instance's look a style sheet that comes
// after ours: a colour is never in a style attribute, which the policy would not let pass.
func loadAssets(look Look) (map[string]asset, error) {
	all := map[string]asset{}
	add := func(name, kind string, data []byte) {
		digest := sha256.Sum256(data)
		stem, suffix, _ := strings.Cut(name, ".")
		all[name] = asset{kind: kind, data: data, at: stem + "." + hex.EncodeToString(digest[:6]) + "." + suffix}
	}
	for name, kind := range map[string]string{"app.css": "text/css; charset=utf-8", "app.js": "text/javascript; charset=utf-8"} {
		data, err := assetFiles.ReadFile("assets/" + name)
		if err != nil {
			return nil, err
		}
		add(name, kind, data)
	}
	if look.Accent != "" {
		if !colour.MatchString(look.Accent) {
			return nil, fmt.Errorf("portal: the accent %q is not a colour like #3459c7", look.Accent)
		}
		add("theme.css", "text/css; charset=utf-8", []byte(":root{--accent:"+look.Accent+"}\n"))
	}
	if look.Logo != nil {
		kind := http.DetectContentType(look.Logo)
		suffix := "png"
		if bytes.Contains(look.Logo[:min(len(look.Logo), 512)], []byte("<svg")) {
			kind, suffix = "image/svg+xml", "svg"
		} else if kind != "image/png" {
			return nil, fmt.Errorf("portal: the logo is neither SVG nor PNG")
		}
		add("logo."+suffix, kind, look.Logo)
	}
	return all, nil
}

// assetPath is the address of an asset, "" if there is none of the name.
func (b *Base) assetPath(name string) string {
	a, there := b.assets[name]
	if !there {
		return ""
	}
	return b.root + "/assets/" + a.at
}

// serveAsset also serves accent-rrggbb.css, the colour that one session brought with it.
func (b *Base) serveAsset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	// An SVG opened by itself is a document: it must not run anything either.
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
	if hexes, is := strings.CutPrefix(name, "accent-"); is {
		value := "#" + strings.TrimSuffix(hexes, ".css")
		if colour.MatchString(value) {
			h.Set("Cache-Control", "public, max-age=31536000, immutable")
			h.Set("Content-Type", "text/css; charset=utf-8")
			_, _ = fmt.Fprintf(w, ":root{--accent:%s}\n", value)
			return
		}
	}
	for _, a := range b.assets {
		if a.at == name {
			h.Set("Cache-Control", "public, max-age=31536000, immutable")
			h.Set("Content-Type", a.kind)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.data))
			return
		}
	}
	h.Set("Cache-Control", "no-store")
	http.Error(w, "no such file", http.StatusNotFound)
}
