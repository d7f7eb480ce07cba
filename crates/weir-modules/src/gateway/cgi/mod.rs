//! What the protocols that descend from CGI share (FastCGI, SCGI, uwsgi): a request is a list of parameters
//! ([`params`]), a response begins with fields but has no line for the status ([`head`]), on a plain stream it may have
//! one all the same ([`answer`]), and servers are named without a URI ([`target`]).

pub(crate) mod answer;
pub(crate) mod head;
pub(crate) mod params;
pub(crate) mod target;
