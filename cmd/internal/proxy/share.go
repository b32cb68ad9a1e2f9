package proxy

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice"
)

// shares is how the tenants and classes of calls share a gate: each by its weight, 1 unless it is
// configured.
type shares struct {
	tenantHeader string
	classHeader  string
	classes      map[string]int64 // weights
	tenants      map[string]share
}

// A share is the one of a tenant: of the limits, or of those of its class.
type share struct {
	weight int64
	class  string
}

// addClass parses the value of -class, such as "batch weight=1".
func (s *shares) addClass(text string) error {
	name, is, err := parseShare(text, false)
	return add(&s.classes, name, is.weight, err)
}

// addTenant parses the value of -tenant, such as "ci weight=3" or "ci class=batch weight=3".
func (s *shares) addTenant(text string) error {
	name, is, err := parseShare(text, true)
	return add(&s.tenants, name, is, err)
}

// add adds what was parsed under a name, and returns err, or an error if the name is there.
func add[V any](to *map[string]V, name string, v V, err error) error {
	if _, twice := (*to)[name]; twice && err == nil {
		err = fmt.Errorf("%s: it is there twice", name)
	}
	if *to == nil {
		*to = make(map[string]V)
	}
	(*to)[name] = v
	return err
}

// mostWeight bounds a weight.
const mostWeight = 1_000_000

func parseShare(text string, classed bool) (name string, is share, err error) {
	fields := strings.Fields(text)
	if len(fields) == 0 || strings.Contains(fields[0], "=") {
		return "", share{}, errors.New("want a name, such as batch weight=1")
	}
	name, is = fields[0], share{weight: 1}
	for _, field := range fields[1:] {
		switch key, value, _ := strings.Cut(field, "="); {
		case key == "weight":
			n, bad := strconv.ParseInt(value, 10, 64)
			if is.weight = n; bad != nil || n < 1 || n > mostWeight {
				err = errors.Join(err, fmt.Errorf("%s: %s: want a number from 1 to %d", name, field, int64(mostWeight)))
			}
		case key == "class" && classed && value != "":
			is.class = value
		default:
			err = errors.Join(err, fmt.Errorf("%s: %s: want weight=", name, field))
		}
	}
	return name, is, err
}

// check returns an error if a class that of is in is not configured.
func (s *shares) check(of, class string) error {
	if _, is := s.classes[class]; class != "" && !is {
		return fmt.Errorf("%s: there is no -class %q", of, class)
	}
	return nil
}

// checkTenants checks the classes of all tenants.
func (s *shares) checkTenants() (err error) {
	for _, name := range slices.Sorted(maps.Keys(s.tenants)) {
		err = errors.Join(err, s.check(name, s.tenants[name].class))
	}
	return err
}

// claimant returns on whose behalf r is made, a call of route, for the job that its path names, or "".
// Its class is the one of the tenant, or else of the route, or else the one that the configured header
// names: operators are believed before callers. A class that is not configured is none, so that callers
// cannot invent shares. For the gate, a tenant without a class is a class, whose claimants are its jobs: a
// tenant gets no more by inventing jobs.
func (s *shares) claimant(t *tenants, r *http.Request, route *route, job string) sluice.Claimant {
	name, is := s.tenant(t, r)
	class := is.class
	if class == "" {
		class = route.class
	}
	if class == "" && s.classHeader != "" {
		class = r.Header.Get(s.classHeader)
	}
	if weight, known := s.classes[class]; known {
		return sluice.Claimant{Name: name, Weight: is.weight, Class: class, ClassWeight: weight}
	}
	return sluice.Claimant{Name: job, Class: name, ClassWeight: is.weight}
}

// tenant returns the name and the share of the tenant of r. A tenant is configured by what
// the header of tenants says, or by the name that the page shows for a credential.
func (s *shares) tenant(t *tenants, r *http.Request) (name string, is share) {
	if named := r.Header.Get(s.tenantHeader); s.tenantHeader != "" && named != "" {
		if is, known := s.tenants[named]; known {
			return named, is
		}
		return t.digest("named", named), share{weight: 1}
	}
	name = t.of(r)
	if is, known := s.tenants[name]; known {
		return name, is
	}
	return name, share{weight: 1}
}
