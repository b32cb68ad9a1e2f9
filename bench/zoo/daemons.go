package main

import (
	"fmt"
	"path/filepath"
)

// Programs of Debian. The text in capitals between two @ is filled in by real.fill.
func init() {
	const default503 = "503 (the default), no header"
	for _, s := range []server{
		nginxDaemon("nginx-20", 20, 0, ";", default503),
		nginxDaemon("nginx-200", 200, 0, ";", default503),
		nginxDaemon("nginx-burst503-20", 20, 20, " nodelay;", default503),
		nginxDaemon("nginx-burst-20", 20, 20, " nodelay; limit_req_status 429;", "429, no header"),
		nginxDaemon("nginx-burst-200", 200, 40, " nodelay; limit_req_status 429;", "429, no header"),
		nginxDaemon("nginx-strict-20", 20, 0, "; limit_req_status 429;", "429, no header"),
		nginxDaemon("nginx-strict-200", 200, 0, "; limit_req_status 429;", "429, no header"),
		nginxDaemon("nginx-delay-20", 20, 20, "; limit_req_status 429;", "429, no header; delays the burst"),
		nginxDaemon("nginx-delay-200", 200, 20, "; limit_req_status 429;", "429, no header; delays the burst"),
		nginxChange("nginx-change-100", 100, 20, 15),
		nginxConnDaemon("nginx-conn-10", 10, .1, "", default503),
		nginxConnDaemon("nginx-conn429-10", 10, .1, "limit_conn_status 429;", "429, no header"),
		nginxConnDaemon("nginx-conn429-4", 4, usual, "limit_conn_status 429;", "429, no header"),
		haproxyRate("haproxy-20in1", 20, 1, "deny deny_status 429", "429, no header; refused calls count"),
		haproxyRate("haproxy-30in10", 30, 10, "deny deny_status 429", "429, no header; refused calls count"),
		haproxyRate("haproxy-tarpit-20in1", 20, 1, "tarpit deny_status 429", "429 after 3 s; refused calls count"),
		haproxyRate("haproxy-tarpit-30in10", 30, 10, "tarpit deny_status 429", "429 after 3 s; refused calls count"),
		haproxyDaemonQueue("haproxy-queue-4", 4, .1),
		apacheQosConn("apache-qos-10", 10, .1, "", "500 (the default), no header"),
		apacheQosConn("apache-qos429-10", 10, .1, "QS_ErrorResponseCode 429", "429, no header"),
		apacheQosEvents("apache-qos-30in10", 30, 10),
		apacheEvasive("apache-evasive-20", 20, 5),
		varnish("varnish-20", 20, 1, "", "429, Retry-After: 5"),
		varnish("varnish-30in10", 30, 10, "", "429, Retry-After: 5"),
		varnish("varnish-block-20", 20, 1, ", 5s", "429, Retry-After: 5; then blocks for 5 s"),
		rack("rack-20in1", 20, 1),
		rack("rack-30in10", 30, 10),
		flask("flask-fixed-20in1", "20 per second", "fixed-window", alignedOf(20, 1), "0", "429, no header"),
		flask("flask-moving-20in1", "20 per second", "moving-window", windowOf(20, 1), "0", "429, no header; a sliding log"),
		flask("flask-moving-30in10", "30 per 10 second", "moving-window", windowOf(30, 10), "0", "429, no header; a sliding log"),
		flask("flask-headers-30in10", "30 per 10 second", "fixed-window", alignedOf(30, 10), "1", "429, X-RateLimit-*, Retry-After"),
	} {
		s.group = daemons
		add(s)
	}
	s := nginxDaemon("short-nginx-50", 50, 10, " nodelay; limit_req_status 429;", "429, no header")
	s.group, s.items = short, 300
	add(s)
}

var nginxNeeds = []need{aProgram("nginx", "apt-get install nginx-light")}

func nginxConf(zone, location string) map[string]string {
	return map[string]string{"nginx.conf": `daemon off; worker_processes 1; user root; pid @DIR@/pid; error_log @DIR@/error.log;
events { worker_connections 1024; }
http {
 access_log off; client_body_temp_path @DIR@/b; proxy_temp_path @DIR@/p; fastcgi_temp_path @DIR@/f; uwsgi_temp_path @DIR@/u; scgi_temp_path @DIR@/s;
 ` + zone + `
 upstream origin { server @ORIGIN@; keepalive 128; }
 server { listen 127.0.0.1:@PORT@; keepalive_requests 1000000;
  location / { ` + location + ` proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ""; } }
}
`}
}

func startNginx(r *real, conf map[string]string) (string, error) {
	return r.front(conf, "nginx", "-p", "@DIR@", "-e", "@DIR@/error.log", "-c", "@DIR@/nginx.conf")
}

func nginxRate(rate, burst int, how string) map[string]string {
	location := "limit_req zone=z"
	if burst > 0 {
		location += fmt.Sprintf(" burst=%d", burst)
	}
	return nginxConf(fmt.Sprintf("limit_req_zone $binary_remote_addr zone=z:1m rate=%dr/s;", rate), location+how)
}

// nginxDaemon is limit_req. burst is what its configuration calls so: one more is granted immediately.
func nginxDaemon(name string, rate, burst int, how, says string) server {
	return server{name: name, limiter: "nginx limit_req", says: says, limit: bucketOf(float64(rate), float64(burst+1)), needs: nginxNeeds,
		start: func(r *real) (string, error) { return startNginx(r, nginxRate(rate, burst, how)) }}
}

// nginxChange halves its rate after so many seconds, by a reload.
func nginxChange(name string, rate, burst int, at float64) server {
	const how = " nodelay; limit_req_status 429;"
	s := nginxDaemon(name, rate, burst, how, "429, no header; half the rate after a reload")
	s.limiter, s.limit = "nginx limit_req, reloaded", s.limit.halved(at)
	s.start = func(r *real) (string, error) {
		url, err := startNginx(r, nginxRate(rate, burst, how))
		r.change = func() {
			if r.write(nginxRate(rate/2, burst, how)) == nil {
				r.kept.hangUp()
			}
		}
		return url, err
	}
	return s
}

func nginxConnDaemon(name string, n int, mean float64, status, says string) server {
	return server{name: name, limiter: "nginx limit_conn", says: says, limit: inFlightOf(float64(n), mean), service: mean, needs: nginxNeeds,
		start: func(r *real) (string, error) {
			return startNginx(r, nginxConf("limit_conn_zone $binary_remote_addr zone=c:1m;", fmt.Sprintf("limit_conn c %d; %s", n, status)))
		}}
}

var haproxyNeeds = []need{aProgram("haproxy", "apt-get install haproxy")}

func startHAProxy(r *real, frontend, backend string) (string, error) {
	return r.front(map[string]string{"haproxy.cfg": `global
 maxconn 2000
defaults
 mode http
 timeout connect 5s
 timeout client 60s
 timeout server 60s
 timeout http-keep-alive 60s
 timeout tarpit 3s
 timeout queue 500ms
frontend f
 bind 127.0.0.1:@PORT@
 ` + frontend + `
 default_backend b
backend b
 server s @ORIGIN@ ` + backend + `
`}, "haproxy", "-db", "-f", "@DIR@/haproxy.cfg")
}

// haproxyRate counts all requests of the last seconds, also those that it denies.
func haproxyRate(name string, n, per int, action, says string) server {
	return server{name: name, limiter: "HAProxy http_req_rate", says: says, limit: counterOf(float64(n), float64(per)), needs: haproxyNeeds,
		start: func(r *real) (string, error) {
			return startHAProxy(r, fmt.Sprintf(`stick-table type ip size 10k expire 120s store http_req_rate(%ds)
 http-request track-sc0 src
 http-request %s if { sc_http_req_rate(0) gt %d }`, per, action, n), "")
		}}
}

func haproxyDaemonQueue(name string, n int, mean float64) server {
	return server{name: name, limiter: "HAProxy maxconn, queue 500 ms", says: "503 after 500 ms in the queue", limit: inFlightOf(float64(n), mean), service: mean, needs: haproxyNeeds,
		start: func(r *real) (string, error) { return startHAProxy(r, "", fmt.Sprintf("maxconn %d", n)) }}
}

const apacheModules = "/usr/lib/apache2/modules"

func apacheNeeds(module, pkg string) []need {
	return []need{aProgram("apache2", "apt-get install apache2"), aFile(module, filepath.Join(apacheModules, module), "apt-get install "+pkg)}
}

func startApache(r *real, module, directives string) (string, error) {
	return r.front(map[string]string{"apache.conf": `ServerRoot @DIR@
Listen 127.0.0.1:@PORT@
ServerName localhost
PidFile @DIR@/pid
DefaultRuntimeDir @DIR@
ErrorLog @DIR@/error.log
LogLevel crit
LoadModule mpm_event_module ` + apacheModules + `/mod_mpm_event.so
LoadModule authz_core_module ` + apacheModules + `/mod_authz_core.so
LoadModule setenvif_module ` + apacheModules + `/mod_setenvif.so
LoadModule proxy_module ` + apacheModules + `/mod_proxy.so
LoadModule proxy_http_module ` + apacheModules + `/mod_proxy_http.so
` + module + `
StartServers 1
ServerLimit 1
ThreadsPerChild 64
ThreadLimit 64
MaxRequestWorkers 64
MinSpareThreads 1
MaxSpareThreads 64
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 30
` + directives + `
ProxyPass / http://@ORIGIN@/ keepalive=On
`}, "apache2", "-D", "FOREGROUND", "-f", "@DIR@/apache.conf")
}

var qosNeeds = apacheNeeds("mod_qos.so", "libapache2-mod-qos")

// qosModule loads mod_qos, and the old PCRE, with which Debian does not link it.
func qosModule() string {
	load := "LoadModule qos_module " + apacheModules + "/mod_qos.so"
	for _, pattern := range []string{"/lib/*-linux-gnu/libpcre.so.3", "/usr/lib/*-linux-gnu/libpcre.so.3"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return "LoadFile " + found[0] + "\n" + load
		}
	}
	return load
}

func apacheQosConn(name string, n int, mean float64, status, says string) server {
	return server{name: name, limiter: "Apache mod_qos QS_LocRequestLimit", says: says, limit: inFlightOf(float64(n), mean), service: mean, needs: qosNeeds,
		start: func(r *real) (string, error) {
			return startApache(r, qosModule(), fmt.Sprintf("QS_LocRequestLimit / %d\n%s", n, status))
		}}
}

// apacheQosEvents blocks a client that has made too many requests in so many seconds.
func apacheQosEvents(name string, n, per int) server {
	return server{name: name, limiter: "Apache mod_qos QS_ClientEventLimitCount", says: "429, no header", limit: windowOf(float64(n), float64(per)), needs: qosNeeds,
		start: func(r *real) (string, error) {
			return startApache(r, qosModule(), fmt.Sprintf("QS_ClientEntries 1000\nSetEnvIf Request_URI ^/ QS_Limit=yes\nQS_ClientEventLimitCount %d %d\nQS_ErrorResponseCode 429", n, per))
		}}
}

func apacheEvasive(name string, n, ban int) server {
	return server{name: name, limiter: "Apache mod_evasive", says: fmt.Sprintf("403, and a ban of %d s that each call renews", ban), limit: windowOf(float64(n), 1),
		needs: apacheNeeds("mod_evasive20.so", "libapache2-mod-evasive"),
		start: func(r *real) (string, error) {
			return startApache(r, "LoadModule evasive20_module "+apacheModules+"/mod_evasive20.so",
				fmt.Sprintf("DOSHashTableSize 3097\nDOSPageCount %d\nDOSPageInterval 1\nDOSSiteCount %d\nDOSSiteInterval 1\nDOSBlockingPeriod %d\nDOSLogDir @DIR@", n, n, ban))
		}}
}

func varnish(name string, n, per int, block, says string) server {
	return server{name: name, limiter: "Varnish vsthrottle", says: says, limit: bucketOf(float64(n)/float64(per), float64(n)),
		needs: []need{aProgram("varnishd", "apt-get install varnish"),
			aFile("vmod vsthrottle", "/usr/lib/*/varnish/vmods/libvmod_vsthrottle.so", "apt-get install varnish-modules")},
		start: func(r *real) (string, error) {
			return r.front(map[string]string{"v.vcl": fmt.Sprintf(`vcl 4.1;
import vsthrottle;
backend default { .host = "127.0.0.1"; .port = "@OPORT@"; }
sub vcl_recv {
 if (vsthrottle.is_denied(client.identity, %d, %ds%s)) { return (synth(429, "Too Many Requests")); }
 return (pass);
}
`, n, per, block)}, "varnishd", "-F", "-n", "@DIR@/v", "-a", "127.0.0.1:@PORT@", "-f", "@DIR@/v.vcl", "-s", "malloc,16m", "-j", "none")
		}}
}

func rack(name string, n, per int) server {
	return server{name: name, limiter: "rack-attack", says: "429, no header; windows of the wall clock", limit: alignedOf(float64(n), float64(per)),
		needs: []need{aProgram("puma", "apt-get install puma"), aSuccess("rack-attack", "apt-get install ruby-rack-attack", "ruby", "-e", "require 'rack/attack'")},
		start: func(r *real) (string, error) {
			return r.program(map[string]string{"config.ru": rackConfig}, "env", fmt.Sprintf("N=%d", n), fmt.Sprintf("PER=%d", per),
				"puma", "-q", "-t", "40:40", "-b", "tcp://127.0.0.1:@PORT@", "@DIR@/config.ru")
		}}
}

const rackConfig = `require 'rack/attack'
class Store # in memory
  def initialize; @m = Mutex.new; @h = {}; end
  def increment(key, amount, options = {}); @m.synchronize { @h[key] = (@h[key] || 0) + amount }; end
  def read(key); @m.synchronize { @h[key] }; end
  def write(key, value, options = {}); @m.synchronize { @h[key] = value }; end
end
Rack::Attack.cache.store = Store.new
Rack::Attack.throttle('ip', limit: ENV['N'].to_i, period: ENV['PER'].to_i) { |req| 'all' }
use Rack::Attack
run lambda { |env| sleep(0.005 + rand * 0.025); [200, {'Content-Type' => 'text/plain'}, ["ok\n"]] }
`

// python is the Python of Debian, whose packages another one in the PATH would not find.
const python = "/usr/bin/python3"

func flask(name, text, strategy string, l limit, headers, says string) server {
	return server{name: name, limiter: "Flask-Limiter " + strategy, says: says, limit: l,
		needs: []need{aSuccess("Flask-Limiter", "apt-get install python3-flask-limiter", python, "-c", "import flask_limiter")},
		start: func(r *real) (string, error) {
			return r.program(map[string]string{"app.py": flaskApp}, "env", "LIMIT="+text, "STRATEGY="+strategy, "HEADERS="+headers, "PORT=@PORT@", python, "@DIR@/app.py")
		}}
}

const flaskApp = `import os, random, time, logging
from flask import Flask
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address
from werkzeug.serving import run_simple, WSGIRequestHandler
logging.getLogger('werkzeug').setLevel(logging.ERROR)
WSGIRequestHandler.protocol_version = 'HTTP/1.1'
app = Flask('zoo')
Limiter(get_remote_address, app=app, default_limits=[os.environ['LIMIT']], storage_uri='memory://',
        strategy=os.environ['STRATEGY'], headers_enabled=os.environ['HEADERS'] == '1')
@app.route('/')
def index():
    time.sleep(random.uniform(.005, .03))
    return 'ok'
run_simple('127.0.0.1', int(os.environ['PORT']), app, threaded=True)
`
