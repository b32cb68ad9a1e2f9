package platforms

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/sluice-go/sluice/sluicehttp"
)

// A things is a provider with one kind of resource.
type things struct {
	base   http.RoundTripper
	sluice bool
}

func (p *things) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "things"
}
func (p *things) Schema(context.Context, provider.SchemaRequest, *provider.SchemaResponse) {}
func (p *things) DataSources(context.Context) []func() datasource.DataSource               { return nil }
func (p *things) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return new(thing) }}
}

func (p *things) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	if !p.sluice {
		resp.ResourceData = &http.Client{Transport: p.base}
		return
	}
	base := p.base
	// begin
	transport, err := sluicehttp.New(base) // one for all resources of the provider
	if err != nil {
		resp.Diagnostics.AddError("cannot make a client", err.Error())
		return
	}
	client := &http.Client{Transport: transport} // no Timeout: it would include the queue
	resp.ResourceData = client
	resp.DataSourceData = client
	// end
}

// A thing is a resource that a call of the API creates.
type thing struct{ client *http.Client }

func (r *thing) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "things_thing"
}
func (r *thing) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{Attributes: map[string]schema.Attribute{"name": schema.StringAttribute{Required: true}}}
}
func (r *thing) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.client, _ = req.ProviderData.(*http.Client) // nil before the provider is configured
}
func (r *thing) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	if err := post(ctx, r.client, "https://api.test/things"); err != nil {
		resp.Diagnostics.AddError("cannot create the thing", err.Error())
		return
	}
	resp.State.Raw = req.Plan.Raw
}
func (r *thing) Read(context.Context, resource.ReadRequest, *resource.ReadResponse)       {}
func (r *thing) Update(context.Context, resource.UpdateRequest, *resource.UpdateResponse) {}
func (r *thing) Delete(context.Context, resource.DeleteRequest, *resource.DeleteResponse) {}

// post creates something, and fails unless that is what happened.
func post(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{}`))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("the API says %s", resp.Status)
	}
	return nil
}

// apply creates resources as "terraform apply -parallelism=50" does, by the requests that it sends to a provider. It
// returns how many could not be created.
func apply(t *testing.T, p provider.Provider, n int) (failed int) {
	t.Helper()
	server, err := providerserver.NewProtocol6WithError(p)()
	if err != nil {
		t.Fatal(err)
	}
	nothing := tftypes.Object{AttributeTypes: map[string]tftypes.Type{}}
	config := dynamic(t, nothing, tftypes.NewValue(nothing, map[string]tftypes.Value{}))
	configured, err := server.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{TerraformVersion: "1.0.0", Config: config})
	if err != nil || len(configured.Diagnostics) > 0 {
		t.Fatal(err, configured.Diagnostics)
	}
	object := tftypes.Object{AttributeTypes: map[string]tftypes.Type{"name": tftypes.String}}
	none := dynamic(t, object, tftypes.NewValue(object, nil))
	return inParallel(n, 50, func(i int) error {
		planned := dynamic(t, object, tftypes.NewValue(object, map[string]tftypes.Value{"name": tftypes.NewValue(tftypes.String, fmt.Sprint(i))}))
		resp, err := server.ApplyResourceChange(t.Context(), &tfprotov6.ApplyResourceChangeRequest{
			TypeName: "things_thing", PriorState: none, PlannedState: planned, Config: planned,
		})
		switch {
		case err != nil:
			return err
		case len(resp.Diagnostics) > 0:
			return errors.New(resp.Diagnostics[0].Detail)
		}
		return nil
	})
}

func dynamic(t *testing.T, kind tftypes.Type, value tftypes.Value) *tfprotov6.DynamicValue {
	t.Helper()
	v, err := tfprotov6.NewDynamicValue(kind, value)
	if err != nil {
		t.Error(err)
	}
	return &v
}

// An apply of 300 resources with 50 in parallel succeeds without configuration.
func TestTerraform(t *testing.T) {
	succeed(t, func(t *testing.T, base http.RoundTripper) int { return apply(t, &things{base, true}, 300) })
}

func TestTerraform_WithoutSluice(t *testing.T) {
	fail(t, func(t *testing.T, base http.RoundTripper) int { return apply(t, &things{base, false}, 300) })
}
