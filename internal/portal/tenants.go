package portal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
)

// tenantRow is a tenant in the operator's list.
type tenantRow struct {
	client.Tenant
	Chip chip
	Page string
}

func tenantChip(t client.Tenant) chip {
	if t.State == "paused" {
		return chip{"mute", "pause", "Paused"}
	}
	return chip{"ok", "ok", "Active"}
}

func (o *operator) tenants(v *Visit) error {
	filter, isShort := shortFilter(v.URL.Query(), []string{"q", "state", "cursor"})
	if !isShort {
		return v.Redirect(withQuery(v.Path("tenants"), filter), "")
	}
	query := url.Values{"limit": {"50"}}
	for name, values := range filter {
		query[name] = values
	}
	page, err := Ask[client.Page[client.Tenant]](v, client.Path("v1", "tenants"), query)
	bad, err := refusedFilter(err)
	if err != nil {
		return err
	}
	var rows []tenantRow
	for _, t := range page.Data {
		rows = append(rows, tenantRow{t, tenantChip(t), v.Path("tenants", t.Key)})
	}
	with := deliveryList{Filter: filter}
	data := map[string]any{"Rows": rows, "Filter": filter, "Bad": bad, "Shown": some(len(rows), "tenant", "tenants"), "First": "", "Older": "", "Filtered": len(filter) > 0}
	if page.NextCursor != nil {
		data["Older"] = with.older(*page.NextCursor, "")
	}
	if filter.Get("cursor") != "" {
		data["First"] = with.with("cursor", "")
	}
	return v.Show(Page{Name: "tenants", Title: "Tenants", Section: sectionTenants, Status: listStatus(bad), Data: data})
}

// tenantForm is the form that makes or changes a tenant, with what is in its fields.
type tenantForm struct {
	Key, Name, State, Egress, Weight, MaxInFlight, MaxEndpoints string
	New                                                         bool
	Action                                                      string
	Faults                                                      faults
}

// tenantPage is one tenant as the operator sees it.
type tenantPage struct {
	client.Tenant
	Chip   chip
	Form   tenantForm
	Stats  client.Stats
	Charts []chart
	Links  []Link
	Rate   string
}

func (o *operator) newTenant(v *Visit) error {
	return v.Show(Page{Name: "tenant-new", Title: "Add a tenant", Section: sectionTenants, Data: o.emptyTenant(v)})
}

func (o *operator) emptyTenant(v *Visit) tenantForm {
	return tenantForm{New: true, State: "active", Egress: "public", Weight: "1", MaxInFlight: "10", Action: v.Path("tenants"), Faults: faults{}}
}

func (o *operator) tenant(v *Visit) error { return o.showTenant(v, nil, http.StatusOK) }

// tenantSettings is a tenant as the API tells it.
type tenantSettings struct {
	client.Tenant
	MaxEndpoints *int   `json:"max_endpoints"`
	Egress       string `json:"egress"`
}

func (o *operator) showTenant(v *Visit, form *tenantForm, status int) error {
	key := v.PathValue("tenant")
	t, err := Ask[tenantSettings](v, client.Path("v1", "tenants", key), nil)
	if err != nil {
		return err
	}
	stats, err := Ask[client.Stats](v, client.Path("v1", "tenants", key, "stats"), url.Values{
		"from": {stampOf(v.Now.Add(-24 * time.Hour))}, "to": {stampOf(v.Now.Add(time.Second))}, "bucket": {"1h"},
	})
	if err != nil {
		return err
	}
	page := &tenantPage{Tenant: t.Tenant, Chip: tenantChip(t.Tenant), Stats: stats, Charts: chartsOf(stats), Rate: percent(stats.Totals.SuccessRate)}
	if form == nil {
		form = &tenantForm{
			Key: t.Key, Name: t.Name, State: t.State, Egress: t.Egress, Weight: strconv.FormatFloat(t.Weight, 'g', -1, 64), MaxInFlight: strconv.Itoa(t.MaxInFlight),
			Action: v.Path("tenants", t.Key), Faults: faults{},
		}
		if t.MaxEndpoints != nil {
			form.MaxEndpoints = strconv.Itoa(*t.MaxEndpoints)
		}
	}
	page.Form = *form
	for _, part := range []string{"deliveries", "events", "endpoints", "recover"} {
		page.Links = append(page.Links, Link{v.Path("portal", t.Key, part), strings.ToUpper(part[:1]) + part[1:]})
	}
	return v.Show(Page{Name: "tenant", Title: t.Key, Section: sectionTenants, Status: status, Data: page})
}

// putTenant makes a tenant or changes one.
func (o *operator) putTenant(v *Visit) error {
	form := o.emptyTenant(v)
	form.Key = strings.TrimSpace(v.PostFormValue("tenant"))
	if key := v.PathValue("tenant"); key != "" {
		form.New, form.Key, form.Action = false, key, v.Path("tenants", key)
	}
	form.Name, form.State, form.Egress = v.PostFormValue("name"), v.PostFormValue("state"), v.PostFormValue("egress")
	form.Weight, form.MaxInFlight, form.MaxEndpoints = strings.TrimSpace(v.PostFormValue("weight")), strings.TrimSpace(v.PostFormValue("max_in_flight")), strings.TrimSpace(v.PostFormValue("max_endpoints"))
	refuse := func(found faults) error {
		form.Faults = found
		if form.New {
			return v.Show(Page{Name: "tenant-new", Title: "Add a tenant", Section: sectionTenants, Status: http.StatusUnprocessableEntity, Data: form})
		}
		return o.showTenant(v, &form, http.StatusUnprocessableEntity)
	}
	if form.Key == "" {
		return refuse(faults{"tenant": "Every tenant has a key: yours for the customer."})
	}
	body, found := form.body()
	if len(found) > 0 {
		return refuse(found)
	}
	if form.New {
		if _, err := Ask[client.Tenant](v, client.Path("v1", "tenants", form.Key), nil); err == nil {
			return refuse(faults{"tenant": "There is a tenant with this key already."})
		}
	}
	if _, err := Tell[client.Tenant](v.Context(), v.admin(), http.MethodPut, client.Path("v1", "tenants", form.Key), body, ""); err != nil {
		if found := faultsOf(err); found != nil {
			if whole := found[""]; whole != "" && form.New { // what is wrong with a path is wrong with the key
				found = faults{"tenant": whole}
			}
			return refuse(found)
		}
		return err
	}
	say := "Saved. It holds for every delivery from now on."
	if form.New {
		say = "The tenant is there. Events can be published for it now, and are kept from the first endpoint on."
	}
	return v.Redirect(v.Path("tenants", form.Key), say)
}

// body is the request that the form means; what is empty returns to the default.
func (f *tenantForm) body() ([]byte, faults) {
	found := faults{}
	fields := map[string]any{"name": f.Name, "state": f.State, "egress": f.Egress, "weight": nil, "max_in_flight": nil, "max_endpoints": nil}
	for name, text := range map[string]string{"weight": f.Weight, "max_in_flight": f.MaxInFlight, "max_endpoints": f.MaxEndpoints} {
		if text == "" {
			continue
		}
		if !json.Valid([]byte(text)) || bytes.ContainsAny([]byte(text), `"{[tfn`) {
			found[name] = fmt.Sprintf("“%s” is not a number.", text)
			continue
		}
		fields[name] = json.RawMessage(text)
	}
	body, err := json.Marshal(fields)
	if err != nil {
		found[""] = "The form could not be read."
	}
	return body, found
}
