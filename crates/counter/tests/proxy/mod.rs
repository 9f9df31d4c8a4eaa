//! Stands between the service and Redis, and is unreliable when told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Copy)]
pub(crate) enum Way {
    Pass = 0,
    /// What was asked arrives, and no answer comes back: the connection breaks.
    CutAnswers = 1,
    CutEveryTenth = 2,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    way: Arc<AtomicU8>,
}

impl Proxy {
    pub(crate) async fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let way = Arc::new(AtomicU8::new(Way::Pass as u8));
        let (told, answers) = (Arc::clone(&way), Arc::new(AtomicU32::new(0)));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, to, Arc::clone(&told), Arc::clone(&answers)));
            }
        });
        Self { port, way }
    }

    pub(crate) fn set(&self, way: Way) {
        self.way.store(way as u8, Ordering::SeqCst);
    }
}

async fn pass(mut client: TcpStream, to: u16, way: Arc<AtomicU8>, answers: Arc<AtomicU32>) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    let (mut from_client, mut from_server) = ([0; 65_536], [0; 65_536]);
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => match read {
                Ok(length) if length > 0 => server.write_all(&from_client[..length]).await.unwrap(),
                Ok(_) | Err(_) => return,
            },
            read = server.read(&mut from_server) => {
                let Ok(length) = read else { return };
                let number = answers.fetch_add(1, Ordering::SeqCst);
                let way = way.load(Ordering::SeqCst);
                let cut = way == Way::CutAnswers as u8 || (way == Way::CutEveryTenth as u8 && number % 10 == 9);
                if length == 0 || cut || client.write_all(&from_server[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// A Redis that has one answer to everything but the greeting.
pub(crate) async fn answer_always(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut asked = [0; 65_536];
                while let Ok(length) = client.read(&mut asked).await {
                    let text = String::from_utf8_lossy(&asked[..length]).into_owned();
                    if length == 0 {
                        return;
                    }
                    // The client introduces itself; each introduction is a command of its own.
                    let greetings = text.matches("SETINFO").count();
                    let reply = if greetings > 0 { "+OK\r\n".repeat(greetings) } else { answer.to_owned() };
                    if client.write_all(reply.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}
