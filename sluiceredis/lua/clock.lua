-- What every script begins with. The server's clock is read once, here: a script
-- that read it twice would decide at two instants. Numbers of Lua are doubles,
-- exact up to 2^53: microseconds since 1970 fit, nanoseconds do not.
local time = redis.call('TIME')
local sec, us = tonumber(time[1]), tonumber(time[2])
local now = sec * 1000000 + us
